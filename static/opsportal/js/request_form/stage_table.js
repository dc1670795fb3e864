// The table of stages changes without loading the page again, and takes rows that a spreadsheet
// has copied. Without this file, its buttons load the page.
const form = document.querySelector("form:has(> .formgrid)");

if (form) {
  const TABLE = "#stages";

  // Another type is chosen but its fields are not shown yet: then the whole page changes.
  form.addEventListener("htmx:beforeRequest", (event) => {
    const button = event.target.closest("button[name=do]");
    const type = form.elements.workflow;
    if (!button || !type || type.value === form.elements.shown_workflow?.value) return;
    event.preventDefault();
    form.requestSubmit(button);
  });

  // What a button has changed is saved and checked like what is typed.
  document.addEventListener("htmx:afterSettle", (event) => {
    if (!event.target.matches?.(TABLE)) return;
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
