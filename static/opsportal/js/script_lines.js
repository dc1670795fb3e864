// Lines of a script: `#L3-L7` marks a range; a click with Shift on a second number makes one.
const markLines = () => {
  const range = /^#L(\d+)-L(\d+)$/.exec(location.hash);
  const [first, last] = range ? [Number(range[1]), Number(range[2])].sort((a, b) => a - b) : [1, 0];
  for (const line of document.querySelectorAll(".code > div")) {
    const number = Number(line.id.slice(1));
    line.classList.toggle("chosen", number >= first && number <= last);
  }
  if (range) document.getElementById(`L${first}`)?.scrollIntoView({ block: "center" });
};
window.addEventListener("hashchange", markLines);
markLines();

document.addEventListener("click", (event) => {
  const link = event.target.closest?.(".code > div > a[href^='#L']");
  const start = /^#L(\d+)/.exec(location.hash);
  if (link && start && event.shiftKey) {
    event.preventDefault();
    location.hash = `#L${start[1]}-${link.hash.slice(1)}`;
  }
});
