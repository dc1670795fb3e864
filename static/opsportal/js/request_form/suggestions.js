// Values of earlier requests are suggested as one types.
const WAIT = 200;
const sections = document.querySelector("form .form-grid");
let timer;

const suggest = async ({ list, value }) => {
  if (!list) return;  // the field was replaced meanwhile
  const address = `${list.dataset.url}&${new URLSearchParams({ text: value })}`;
  const response = await fetch(address).catch(() => undefined);
  if (!response?.ok || response.redirected) return;
  const { values } = await response.json();
  list.replaceChildren(...values.map((suggestion) => new Option("", suggestion)));
};

for (const kind of ["focusin", "input"]) {
  sections?.addEventListener(kind, ({ target }) => {
    if (!target.list) return;
    clearTimeout(timer);
    timer = setTimeout(suggest, WAIT, target);
  });
}
