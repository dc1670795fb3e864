// Parts of a page that refresh themselves: when they wait, what they say when they cannot, and what
// stays in place.

const sayStale = (text) => {
  if (document.querySelector("#stale")) return;
  const note = document.createElement("p");
  note.id = "stale";
  note.className = "note error";
  note.setAttribute("role", "alert");
  note.textContent = text;
  document.querySelector("main").prepend(note);
};
const sayUnanswered = () => {
  sayStale("The portal does not answer, so this page is not up to date. Retrying.");
};
document.addEventListener("htmx:sendError", sayUnanswered);
document.addEventListener("htmx:responseError", sayUnanswered);
document.addEventListener("htmx:beforeSwap", (event) => {
  if (!event.detail.isError) document.querySelector("#stale")?.remove();
});

// A lost connection is said at once. Once it is back, the page refreshes what refreshes itself.
window.addEventListener("offline", () => sayStale("No connection. Your input stays on this page."));
window.addEventListener("online", () => {
  document.querySelector("#stale")?.remove();
  document.body.dispatchEvent(new Event("refresh"));
});

// A part waits while the page is hidden, and while someone fills in one of its forms.
document.addEventListener("htmx:beforeRequest", (event) => {
  const part = event.detail.elt;
  if (!part.matches('[hx-trigger^="every"]')) return;
  const isFilledIn = part.querySelector(
    "details[open] form, details[open].narrow-fold, :is(input, select, textarea):focus",
  );
  if (document.hidden || isFilledIn) event.preventDefault();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) document.body.dispatchEvent(new Event("refresh"));
});

// A replaced part keeps the focus, how far it is scrolled sideways, and its place on the screen.
const SIDEWAYS = ".scroll, .log";
const places = new Map();

document.addEventListener("htmx:beforeSwap", (event) => {
  const part = event.detail.target;
  if (!part.id || !event.detail.shouldSwap) return;
  document.documentElement.style.overflowAnchor = "none";
  const active = document.activeElement;
  places.set(part.id, {
    focused: part.contains(active) && !active.id ? active : null,
    sideways: [...part.querySelectorAll(SIDEWAYS)].map((box) => box.scrollLeft),
    y: window.scrollY,
  });
});

const focusLike = (part, focused) => {
  const candidates = [...part.querySelectorAll(focused.tagName)];
  const isAlike = ({ textContent, href }) => {
    return textContent === focused.textContent && href === focused.href;
  };
  const same = candidates.find(isAlike);
  same?.focus({ preventScroll: true });
};

document.addEventListener("htmx:afterSettle", () => {
  for (const [id, { focused, sideways, y }] of places) {
    const part = document.getElementById(id);
    if (part) {
      part.querySelectorAll(SIDEWAYS).forEach((box, index) => {
        box.scrollLeft = sideways[index] ?? 0;
      });
      // A part that says what to focus next has done so.
      if (focused && !part.querySelector("[autofocus]")) focusLike(part, focused);
    }
    window.scrollTo({ top: y, behavior: "instant" });
  }
  places.clear();
  requestAnimationFrame(() => {
    document.documentElement.style.overflowAnchor = "";
  });
});
