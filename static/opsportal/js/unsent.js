// What was typed into a form that the portal did not answer is put back when its page is next shown.
// Until then it is kept for this tab alone. Passwords and files are never kept.
const KEY = "unsent";
const UNTYPED = "[type=password], [type=hidden], [type=file], [type=submit], [type=button]";
const MOST_MS = 3_600_000;
const here = location.pathname + location.search;

const typedFields = (form) => {
  const isTyped = (field) => field.name && field.matches("input, textarea, select") && !field.matches(UNTYPED);
  return [...form.elements].filter(isTyped);
};
const valueOf = (field) => {
  if (field.matches("[type=checkbox], [type=radio]")) return field.checked;
  if (field.multiple && field.options) return [...field.options].map((option) => option.selected);
  return field.value;
};
const setValue = (field, value) => {
  if (typeof value === "boolean") field.checked = value;
  else if (Array.isArray(value)) value.forEach((chosen, index) => { field.options[index].selected = chosen; });
  else field.value = value;
};

const putBack = ({ action, values }) => {
  const form = [...document.forms].find((candidate) => candidate.action === action);
  if (!form) return;
  const left = [...values];
  for (const field of typedFields(form)) {
    const index = left.findIndex(([name]) => name === field.name);
    if (index < 0) continue;
    const [[, value]] = left.splice(index, 1);
    if (valueOf(field) === value) continue;
    setValue(field, value);
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }
  form.closest("details")?.setAttribute("open", "");
  const note = document.createElement("p");
  note.className = "note warning";
  note.setAttribute("role", "alert");
  note.textContent = "The portal did not answer, so this may not have been saved. Your input is back "
    + "in the form: check the page, then send it again.";
  document.querySelector("main").prepend(note);
  form.scrollIntoView();
};

// This page answers the form, unless `reconnect.js` or the button *Back* led to it.
const kept = JSON.parse(sessionStorage.getItem(KEY) || "null");
if (kept) {
  const [{ type }] = performance.getEntriesByType("navigation");
  const isUnanswered = kept.failed || type === "back_forward";
  sessionStorage.removeItem(KEY);
  if (isUnanswered && kept.page === here && Date.now() - kept.at < MOST_MS) putBack(kept);
}

window.addEventListener("submit", (event) => {
  const form = event.target;
  if (event.defaultPrevented || form.method !== "post") return;
  const values = typedFields(form).map((field) => [field.name, valueOf(field)]);
  const entry = { page: here, action: form.action, values, at: Date.now() };
  if (values.length) sessionStorage.setItem(KEY, JSON.stringify(entry));
});
