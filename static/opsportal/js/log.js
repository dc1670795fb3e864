// The page of a log: n and p go to the next and previous error, / to its search, a click with Shift
// on a second line number makes a range of lines.
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, textarea, select, [contenteditable]");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const link = { n: "#next-error", p: "#previous-error" }[event.key];
  if (link) document.querySelector(link)?.click();
});
document.addEventListener("click", (event) => {
  const link = event.target.closest?.(".log-row > a[href]");
  const from = new URLSearchParams(location.search).get("at");
  if (!link || !event.shiftKey || from === null) return;
  event.preventDefault();
  const address = new URL(link.href);
  const ends = [from, address.searchParams.get("at")].map(Number);
  const start = Math.min(...ends);
  address.searchParams.set("at", start);
  address.searchParams.set("to", Math.max(...ends));
  address.hash = `#b${start}`;
  location.assign(address);
});
