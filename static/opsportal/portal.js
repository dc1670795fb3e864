// Small things that a page does without a framework; every page works without them.
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    const find = document.querySelector("#find");
    if (find) {
      event.preventDefault();
      find.focus();
      find.select();
    }
  }
});

// A filter form sends only what is filled in, so that its address stays short.
document.addEventListener("submit", (event) => {
  if (event.target.matches("form[method=get]")) {
    for (const field of event.target.elements) {
      if (field.name && field.value === "") field.disabled = true;
    }
    setTimeout(() => { for (const field of event.target.elements) field.disabled = false; });
  }
  const question = event.submitter?.dataset.confirm;
  if (question && !window.confirm(question)) event.preventDefault();
});
