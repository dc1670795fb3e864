// A login that ended is noticed when a part of the page is refreshed: the answer comes from the
// login page. A page without unsent input is loaded again. One with input stays as it is, behind a
// dialog that asks for the password; the next form that is sent takes its new token from the
// cookie.
let hasInput = false;
document.addEventListener("input", (event) => {
  if (event.target.closest("form[method=post]")) hasInput = true;
});

const pathOf = (address) => new URL(address, location.href).pathname;
const isElsewhere = ({ xhr, pathInfo }) => {
  const answered = xhr.responseURL;
  return answered && pathOf(answered) !== pathOf(pathInfo.requestPath);
};

const askForLogin = () => {
  const template = document.querySelector("#login-again");
  if (!template || document.querySelector("dialog.login")) return;
  const dialog = template.content.firstElementChild.cloneNode(true);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  htmx.process(dialog);
  dialog.showModal();
};

document.addEventListener("htmx:beforeSwap", (event) => {
  const dialog = event.detail.elt.closest("dialog.login");
  if (dialog && isElsewhere(event.detail)) {  // its form was answered by the page after the login
    event.detail.shouldSwap = false;
    dialog.close();
    document.body.dispatchEvent(new Event("refresh"));
  } else if (dialog) {
    event.detail.shouldSwap = true;
    event.detail.isError = false;
  } else if (isElsewhere(event.detail)) {
    event.detail.shouldSwap = false;
    if (hasInput) askForLogin();
    else location.reload();
  }
});
document.addEventListener("htmx:afterSwap", (event) => {
  const isRefusal = event.detail.target.matches("dialog.login .problem");
  if (isRefusal && !event.detail.target.textContent.trim()) {
    event.detail.target.textContent = "Not logged in. Log in in another tab.";
  }
});
