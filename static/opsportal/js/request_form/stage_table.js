// The table of stages changes without loading the page again, and takes rows that a spreadsheet
// has copied. Without this file, its buttons load the page.
const form = document.querySelector("form:has(> .form-grid)");

if (form) {
  const TABLE = "#stages";
  // A button replaces the table, or puts one more stage before its foot.
  const CHANGED = `${TABLE}, ${TABLE} > .foot`;

  // Another type is chosen but its fields are not shown yet: then the whole page changes.
  form.addEventListener("htmx:beforeRequest", (event) => {
    const button = event.target.closest("button[name=do]");
    const type = form.elements.workflow;
    if (!button || !type || type.value === form.elements.shown_workflow?.value) return;
    event.preventDefault();
    form.requestSubmit(button);
  });

  // The new table has the values that were sent. What is typed while the portal answers is kept.
  const FIELDS = `${TABLE} :is(input, select, textarea), #resources input`;
  const stateOf = (field) => {
    return ["checkbox", "radio"].includes(field.type) ? field.checked : field.value;
  };
  let action = "";
  let focused;
  let sent = new Map();

  form.addEventListener("htmx:beforeRequest", (event) => {
    if (!event.target.matches(`${TABLE} button`) || event.defaultPrevented) return;
    action = event.target.value;
    focused = document.activeElement;
    sent = new Map([...form.querySelectorAll(FIELDS)].map((field) => [field, stateOf(field)]));
  });

  // Where a stage is after a button such as `up-2`; undefined if it was removed.
  const placeAfter = (place) => {
    const [verb, number] = action.split("-");
    const pressed = Number(number);
    if (verb === "remove" && place === pressed) return undefined;
    if (verb === "remove") return place > pressed ? place - 1 : place;
    const other = pressed + { up: -1, down: 1 }[verb];
    if (place === pressed) return other;
    return place === other ? pressed : place;
  };
  const findAgain = (field) => {
    const id = field.id.replace(/^(id_stages-)(\d+)/, (all, prefix, place) => {
      return prefix + placeAfter(Number(place));
    });
    return document.getElementById(id);
  };

  // The focus goes to the new stage, unless the user has gone on to another field meanwhile.
  const hasGoneOn = () => ![focused, document.body].includes(document.activeElement);

  // Checks that are still running are about the stages before.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { detail } = event;
    if (!detail.target.matches(CHANGED)) return;
    htmx.trigger("#checks .panel", "htmx:abort");
    if (hasGoneOn()) detail.serverResponse = detail.serverResponse.replaceAll(" autofocus", "");
  });

  // What a button has changed is saved and checked like what is typed.
  document.addEventListener("htmx:afterSettle", (event) => {
    if (!event.target.matches?.(CHANGED)) return;
    // The replaced fields still have what was typed.
    for (const [field, state] of sent) {
      const again = stateOf(field) !== state && findAgain(field);
      if (!again) continue;
      if (typeof state === "boolean") again.checked = field.checked;
      else again.value = field.value;
    }
    const count = form.elements["stages-TOTAL_FORMS"];
    count.dispatchEvent(new Event("input", { bubbles: true }));
  });

  form.addEventListener("paste", (event) => {
    const field = event.target.closest?.(`${TABLE} .line input`);
    const text = event.clipboardData?.getData("text/plain").replace(/[\r\n]+$/, "") ?? "";
    if (!field || !/[\t\n]/.test(text)) return;
    event.preventDefault();
    form.elements.pasted.value = text;
    form.elements.paste_at.value = field.id;
    form.querySelector("button[value=paste]").click();
  });
}
