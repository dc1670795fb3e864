// What every form of a page does. Forms work without it.

// A filter form sends only what is filled in, so that its address stays short.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.matches("form[method=get]")) return;
  for (const field of form.elements) {
    if (field.name && field.value === "") field.disabled = true;
  }
  setTimeout(() => {
    for (const field of form.elements) field.disabled = false;
  });
});

document.addEventListener("submit", (event) => {
  const question = event.submitter?.dataset.confirm;
  if (question && !window.confirm(question)) event.preventDefault();
});

// A login in another tab changes the token that forms send. The cookie has the current one.
window.formToken = () => /(?:^|; )csrftoken=([^;]*)/.exec(document.cookie)?.[1];
document.addEventListener("submit", (event) => {
  const field = event.target.querySelector("input[name=csrfmiddlewaretoken]");
  if (field && formToken()) field.value = formToken();
});
document.addEventListener("htmx:configRequest", (event) => {
  if (!formToken()) return;
  event.detail.headers["X-CSRFToken"] = formToken();
  const { parameters } = event.detail;
  if (parameters.csrfmiddlewaretoken) parameters.csrfmiddlewaretoken = formToken();  // it goes before the header
});

// A form that comes back with errors has the focus at the first of them.
const firstInvalid = document.querySelector("main form [aria-invalid=true]");
if (firstInvalid && !location.hash) {
  let fold = firstInvalid.closest("details");
  while (fold) {
    fold.open = true;
    fold = fold.parentElement.closest("details");
  }
  firstInvalid.focus();
}
