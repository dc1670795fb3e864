// The search of the header: `/` or Ctrl+K goes to it. As one types, it lists the pages and actions
// whose names have the words, and below them what htmx fetches from the page of all results. Arrow
// keys go through both; Enter without a choice opens that page.
const field = document.querySelector("#find");

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, textarea, select, [contenteditable]");
  const hasControl = event.ctrlKey || event.metaKey;
  const isSlash = event.key === "/" && !isTyping && !hasControl && !event.altKey;
  const isControlK = event.key.toLowerCase() === "k" && hasControl;
  if (field && (isSlash || isControlK)) {
    event.preventDefault();
    field.focus();
    field.select();
  }
});

if (field) {
  const MOST_ACTIONS = 8;
  const LEAST_LETTERS = 2;
  const form = field.form;
  const palette = document.querySelector("#palette");
  const list = palette.querySelector("ul");
  const results = document.querySelector("#results");
  const actions = [...document.querySelector("#actions").content.querySelectorAll("a")];

  const hide = () => {
    palette.hidden = true;
  };
  const showWhatIsThere = () => {
    palette.hidden = !list.children.length && !results.children.length;
  };

  const listActions = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matching = actions.filter(({ textContent }) => {
      const name = textContent.toLowerCase();
      return words.every((word) => name.includes(word));
    });
    const items = matching.slice(0, MOST_ACTIONS).map((action) => {
      const item = document.createElement("li");
      item.append(action.cloneNode(true));
      return item;
    });
    list.replaceChildren(...items);
    results.replaceChildren();
    showWhatIsThere();
  };
  field.addEventListener("input", listActions);
  field.addEventListener("focus", listActions);
  results.addEventListener("htmx:afterSwap", showWhatIsThere);
  field.addEventListener("htmx:configRequest", (event) => {
    if (field.value.trim().length < LEAST_LETTERS) event.preventDefault();
  });
  // The page of all results says what is wrong.
  for (const failure of ["htmx:responseError", "htmx:sendError"]) {
    field.addEventListener(failure, (event) => event.stopPropagation());
  }

  form.addEventListener("focusout", (event) => {
    if (!form.contains(event.relatedTarget)) hide();
  });
  palette.addEventListener("mousedown", (event) => event.preventDefault());
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      hide();
      field.focus();
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || palette.hidden) return;
    event.preventDefault();
    const stops = [field, ...palette.querySelectorAll("a")];
    const next = stops.indexOf(document.activeElement) + step;
    stops[(next + stops.length) % stops.length].focus();
  });
}
