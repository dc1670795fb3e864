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

// A login in another tab changes the token that forms send; the cookie has the current one.
const formToken = () => /(?:^|; )csrftoken=([^;]*)/.exec(document.cookie)?.[1];
let typed = false;
document.addEventListener("input", (event) => { typed ||= Boolean(event.target.closest("form[method=post]")); });
document.addEventListener("submit", (event) => {
  const field = event.target.querySelector("input[name=csrfmiddlewaretoken]");
  if (field && formToken()) field.value = formToken();
});
document.addEventListener("htmx:configRequest", (event) => {
  if (formToken()) event.detail.headers["X-CSRFToken"] = formToken();
});

// A part that refreshes itself says when it no longer does; where the login has ended, the page asks for it, and
// is not left while it has unsent input.
const stale = (event, text = "The portal does not answer: this page is not refreshed. It is tried again.") => {
  if (document.querySelector("#stale")) return;
  const note = Object.assign(document.createElement("p"), { id: "stale", className: "note error" });
  note.setAttribute("role", "alert");
  note.textContent = text;
  document.querySelector("main").prepend(note);
};
document.addEventListener("htmx:sendError", stale);
document.addEventListener("htmx:responseError", stale);
document.addEventListener("htmx:beforeSwap", (event) => {
  const { xhr, pathInfo } = event.detail;
  if (!event.detail.isError) document.querySelector("#stale")?.remove();
  if (xhr.responseURL && new URL(xhr.responseURL).pathname !== pathInfo.requestPath.split("?")[0]) {
    event.detail.shouldSwap = false;
    if (typed) stale(event, "You are logged out. Your input stays on this page: log in in another tab, then continue here.");
    else location.reload();
  }
});

// A part that refreshes itself waits while the page is hidden, and while someone fills in one of its forms.
const refreshes = (part) => part.matches?.('[hx-trigger^="every"]');
document.addEventListener("htmx:beforeRequest", (event) => {
  const part = event.detail.elt;
  const busy = () => part.querySelector("details[open] form, :is(input, select, textarea):focus");
  if (refreshes(part) && (document.hidden || busy())) event.preventDefault();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) document.body.dispatchEvent(new Event("refresh"));
});

// Replaced parts keep the focus, how far they are scrolled sideways, and their place on the screen.
const SIDEWAYS = ".scroll, .log";
const places = new Map();
document.addEventListener("htmx:beforeSwap", (event) => {
  const part = event.detail.target;
  if (!part.id || !event.detail.shouldSwap) return;
  document.documentElement.style.overflowAnchor = "none";
  places.set(part.id, {
    focused: part.contains(document.activeElement) && !document.activeElement.id ? document.activeElement : null,
    sideways: [...part.querySelectorAll(SIDEWAYS)].map((box) => box.scrollLeft),
    y: window.scrollY,
  });
});
document.addEventListener("htmx:afterSettle", () => {
  for (const [id, { focused, sideways, y }] of places) {
    const part = document.getElementById(id);
    part?.querySelectorAll(SIDEWAYS).forEach((box, index) => { box.scrollLeft = sideways[index] ?? 0; });
    const same = (each) => each.textContent === focused.textContent && each.href === focused.href;
    if (focused) [...(part?.querySelectorAll(focused.tagName) ?? [])].find(same)?.focus({ preventScroll: true });
    window.scrollTo({ top: y, behavior: "instant" });
  }
  places.clear();
  requestAnimationFrame(() => { document.documentElement.style.overflowAnchor = ""; });
});

// Lines of a script: `#L3-L7` marks a range; a click with Shift on a second number makes one.
const markLines = () => {
  const range = /^#L(\d+)-L(\d+)$/.exec(location.hash);
  const [first, last] = range ? [Number(range[1]), Number(range[2])].sort((a, b) => a - b) : [1, 0];
  for (const row of document.querySelectorAll(".code > div")) {
    const number = Number(row.id.slice(1));
    row.classList.toggle("chosen", number >= first && number <= last);
  }
  if (range) document.getElementById(`L${first}`)?.scrollIntoView({ block: "center" });
};
window.addEventListener("hashchange", markLines);
document.addEventListener("DOMContentLoaded", markLines);
document.addEventListener("click", (event) => {
  const link = event.target.closest?.(".code > div > a[href^='#L']");
  const from = /^#L(\d+)/.exec(location.hash);
  if (link && from && event.shiftKey) {
    event.preventDefault();
    location.hash = `#L${from[1]}-${link.hash.slice(1)}`;
  }
});
