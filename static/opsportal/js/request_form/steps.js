// The steps of the request form: the one with the focus is marked, fields that were filled in are
// noted, and a link to a field opens what folds it away.
const sections = document.querySelector("form .form-grid");
let currentStep;

const markCurrentStep = () => {
  for (const link of document.querySelectorAll("#steps a")) {
    if (link.getAttribute("href") === currentStep) link.setAttribute("aria-current", "step");
    else link.removeAttribute("aria-current");
  }
};
document.addEventListener("htmx:oobAfterSwap", markCurrentStep);

sections?.addEventListener("focusin", (event) => {
  const section = event.target.closest("[data-stage], .form-section");
  if (section) currentStep = `#${section.id}`;
  markCurrentStep();
});

// An empty required field is an error once the focus was in it; until then it is only counted.
// The title has the focus from the start, which says nothing.
sections?.addEventListener("focusout", ({ target }) => {
  if (target.autofocus && !target.value) return;
  const touched = sections.querySelector("input[name=touched]");
  const ids = touched.value.split(" ").filter(Boolean);
  if (target.id && !ids.includes(target.id)) touched.value = [...ids, target.id].join(" ");
});

const openFolds = () => {
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (!target) return;
  for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) {
    fold.open = true;
  }
  target.scrollIntoView();
};
window.addEventListener("hashchange", openFolds);

// Stages move with Alt and the arrow keys.
document.addEventListener("keydown", (event) => {
  const direction = { ArrowUp: "up", ArrowDown: "down" }[event.key];
  const stage = event.altKey && direction && event.target.closest?.("fieldset[data-stage]");
  const button = stage && stage.querySelector(`button[value^="${direction}-"]`);
  if (button) {
    event.preventDefault();
    button.click();
  }
});
