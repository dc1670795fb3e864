// The approver's desk: keys go through the list and open the decisions; a request opens beside the
// list, whose ticks stay.
const list = document.querySelector(".desk-list");
const links = () => [...(list?.querySelectorAll("a[data-key]") ?? [])];
const current = () => links().findIndex((link) => link.hasAttribute("aria-current"));
const WIDE = window.matchMedia("(min-width: 901px)");

const open = (link) => {
  for (const other of links()) other.removeAttribute("aria-current");
  link.setAttribute("aria-current", "true");
  link.scrollIntoView({ block: "nearest" });
  history.replaceState(null, "", link.href);
  htmx.ajax("GET", link.href, {
    target: "#desk-request",
    select: "#desk-request > *",
    swap: "innerHTML",
  });
};

list?.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-key]");
  if (!link || !WIDE.matches || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  open(link);
});

const step = (by) => links()[current() + by]?.click();
const openChanges = () => {
  const details = document.querySelector("#request-changes");
  if (!details) return undefined;
  details.open = true;
  const reason = details.querySelector("textarea");
  reason.focus();
  return reason;
};

// An unusual value adds a line to the requested changes; without this file, the link does.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-note]");
  const reason = link && openChanges();
  if (!reason) return;
  event.preventDefault();
  const lines = reason.value.split("\n").filter(Boolean);
  if (!lines.includes(link.dataset.note)) lines.push(link.dataset.note);
  reason.value = lines.join("\n");
  reason.scrollIntoView({ block: "nearest" });
});

const keys = {
  j: () => step(1),
  k: () => step(-1),
  a: () => document.querySelector("#approve")?.focus(),
  r: openChanges,
  x: () => links()[current()]?.closest("li").querySelector("input").click(),
};

const FIELDS = "input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]";
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest(FIELDS);
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
});
