// Results to waive: the button counts what is ticked, and says when that closes the request.
const button = document.querySelector("#waive");
const ticks = [...document.querySelectorAll("table.blocking input[name=result]")];
const all = document.querySelector("table.blocking input.all");

const count = () => {
  const ticked = ticks.filter((tick) => tick.checked).length;
  all.checked = ticked === ticks.length;
  all.indeterminate = ticked > 0 && !all.checked;
  if (!ticked) button.textContent = "Waive selected";
  else button.textContent = all.checked ? `Waive ${ticked} and close` : `Waive ${ticked}`;
};

if (button && all) {
  all.hidden = false;
  all.addEventListener("change", () => {
    for (const tick of ticks) tick.checked = all.checked;
    count();
  });
  for (const tick of ticks) tick.addEventListener("change", count);
  count();
}
