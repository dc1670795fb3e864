// The page of a log: n and p go to the next and previous error, / to its search, a click with Shift on a second line
// number makes a range of lines.
document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, textarea, select, [contenteditable]") || event.ctrlKey || event.metaKey || event.altKey) return;
  const link = { n: "#next-error", p: "#previous-error" }[event.key];
  if (link) document.querySelector(link)?.click();
});
document.addEventListener("click", (event) => {
  const link = event.target.closest?.(".l > a[href]");
  const from = new URLSearchParams(location.search).get("at");
  if (!link || !event.shiftKey || from === null) return;
  event.preventDefault();
  const address = new URL(link.href);
  const ends = [from, address.searchParams.get("at")].map(Number).sort((one, other) => one - other);
  address.searchParams.set("at", ends[0]);
  address.searchParams.set("to", ends[1]);
  address.hash = `#b${ends[0]}`;
  location.assign(address);
});
