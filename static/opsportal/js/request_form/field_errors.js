// The errors that the checks found are shown at their fields too, in place of those that the page
// came with.
const sections = document.querySelector("form .form-grid");

const describe = (field, id, isDescribed) => {
  const described = (field.getAttribute("aria-describedby") || "").split(" ");
  const others = described.filter((other) => other && other !== id);
  const ids = isDescribed ? [...others, id] : others;
  if (ids.length) field.setAttribute("aria-describedby", ids.join(" "));
  else field.removeAttribute("aria-describedby");
};

const removeErrors = () => {
  for (const list of sections.querySelectorAll(".errorlist:not(.advice)")) list.remove();
  for (const row of sections.querySelectorAll(".row-error")) row.remove();
  for (const field of sections.querySelectorAll("[aria-invalid]")) {
    field.removeAttribute("aria-invalid");
    describe(field, `${field.id}_error`, false);
  }
};

const errorsOf = (field) => {
  const id = `${field.id}_error`;
  const existing = document.getElementById(id);
  if (existing) return existing;
  const list = Object.assign(document.createElement("ul"), { className: "errorlist", id });
  field.closest(".field").append(list);
  field.setAttribute("aria-invalid", "true");
  describe(field, id, true);
  return list;
};

const showErrors = (event) => {
  if (!sections.querySelector("#checks .live")) return;  // no checks ran yet
  // Stages may have moved since the checks ran: they are about to run again.
  if (event.target.id === "stages") return;
  removeErrors();
  for (const error of sections.querySelectorAll("#checks li.error")) {
    const message = error.querySelector("[data-message]").textContent;
    for (const link of error.querySelectorAll("a")) {
      const field = document.getElementById(link.hash.slice(1));
      if (!field?.closest(".field") || field.hidden) continue;
      errorsOf(field).append(Object.assign(document.createElement("li"), { textContent: message }));
    }
  }
};
if (sections) document.addEventListener("htmx:afterSettle", showErrors);
