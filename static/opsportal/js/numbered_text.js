/* Numbers beside the lines of a text area, because errors name lines; the line of the first error is selected. */

function addNumbers(area) {
  const numbers = document.createElement("pre");
  numbers.className = "line-numbers";
  numbers.setAttribute("aria-hidden", "true");
  const frame = document.createElement("div");
  frame.className = "numbered";
  area.replaceWith(frame);
  frame.append(numbers, area);

  let shown = 0;
  function refresh() {
    const count = area.value.split("\n").length;
    if (count !== shown) {
      numbers.textContent = Array.from({ length: count }, (_, index) => index + 1).join("\n");
      shown = count;
    }
    numbers.scrollTop = area.scrollTop;
  }
  area.addEventListener("input", refresh);
  area.addEventListener("scroll", refresh);
  refresh();
  new ResizeObserver(refresh).observe(area);
}

function selectLine(area, number) {
  const lines = area.value.split("\n");
  const start = lines.slice(0, number - 1).join("\n").length + (number > 1 ? 1 : 0);
  area.focus();
  area.setSelectionRange(start, start + (lines[number - 1] ?? "").length);
  area.scrollTop = (area.scrollHeight / lines.length) * (number - 3);
}

const areas = document.querySelectorAll("textarea[data-numbered]");
areas.forEach(addNumbers);

// After all scripts: one of Django's gives the focus to the first field.
addEventListener("load", () => {
  for (const area of areas) {
    const errors = area.closest(".form-row")?.querySelector(".errorlist");
    const line = errors && /\bline (\d+)/i.exec(errors.textContent);
    if (line) {
      selectLine(area, Number(line[1]));
      return;
    }
  }
});
