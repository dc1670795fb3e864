// The queue: a row is dragged by its grip, or moved with Alt and the arrow keys. Either fills in
// the row's own form, and asks for the reason: nothing moves before that is sent. Forms show what
// they would change as they are filled in. Without this file the form is filled in by hand, and
// Preview shows its effect.
const rows = () => [...document.querySelectorAll("table.queue-list tr[data-rank]")];
const rankOf = (row) => Number(row.dataset.rank);
let dragged;

const EFFECTS = "details.move form, details.level form";
const WAIT = 200;
let timer;

// Once the effect is on the page, the change itself is the first button.
const promote = (form) => {
  const previewing = form.querySelector("button[value=preview]");
  const sending = form.querySelector("button:not([value])");
  previewing.before(sending);
  previewing.classList.remove("main");
  sending.classList.add("main");
};

const preview = async (form) => {
  const effects = `details[open] > form[action="${form.getAttribute("action")}"] .effects > *`;
  await htmx.ajax("POST", form.action, {
    source: form,
    values: { do: "preview" },
    target: form.querySelector(".effects"),
    select: effects,
    swap: "innerHTML",
  });
  promote(form);
};

const previewSoon = (form) => {
  clearTimeout(timer);
  const needed = [...form.elements].filter((field) => field.name !== "reason");
  const isFilled = needed.every((field) => field.checkValidity());
  if (isFilled) timer = setTimeout(() => preview(form), WAIT);
};

document.addEventListener("input", (event) => {
  const form = event.target.closest?.(EFFECTS);
  if (form && event.target.name !== "reason") previewSoon(form);
});

const ask = (row, rank) => {
  const details = row.querySelector("details.move");
  if (!details) return;
  const field = details.querySelector("[name=to_rank]");
  field.value = Math.min(Number(field.max), Math.max(1, rank));
  details.open = true;
  details.querySelector("[name=reason]").focus();
  details.scrollIntoView({ block: "nearest" });
  previewSoon(details.querySelector("form"));
};

const mark = (target) => {
  for (const row of rows()) {
    row.classList.toggle("drop-before", row === target && rankOf(target) < rankOf(dragged));
    row.classList.toggle("drop-after", row === target && rankOf(target) > rankOf(dragged));
  }
};

for (const grip of document.querySelectorAll("table.queue-list .grip")) {
  const row = grip.closest("tr");
  grip.hidden = false;
  grip.draggable = true;
  grip.addEventListener("click", () => ask(row, rankOf(row) - 1));
  grip.addEventListener("dragstart", (event) => {
    dragged = row;
    event.dataTransfer.effectAllowed = "move";
    event.dataTransfer.setData("text/plain", row.id);
    event.dataTransfer.setDragImage(row, 0, 0);
  });
  grip.addEventListener("dragend", () => {
    dragged = undefined;
    for (const other of rows()) other.classList.remove("drop-before", "drop-after");
  });
}

document.addEventListener("dragover", (event) => {
  const target = dragged && event.target.closest?.("table.queue-list tr[data-rank]");
  if (target) {
    event.preventDefault();
    mark(target);
  }
});

document.addEventListener("drop", (event) => {
  const target = dragged && event.target.closest?.("table.queue-list tr[data-rank]");
  if (target) {
    event.preventDefault();
    if (target !== dragged) ask(dragged, rankOf(target));
  }
});

document.addEventListener("keydown", (event) => {
  const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  const row = event.altKey && step && event.target.closest?.("table.queue-list tr[data-rank]");
  const details = row && row.querySelector("details.move");
  if (!details) return;
  event.preventDefault();
  const typed = Number(details.querySelector("[name=to_rank]").value);
  ask(row, (details.open && typed ? typed : rankOf(row)) + step);
});
