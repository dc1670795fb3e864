// Small things that a page does without a framework; every page works without them.
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  const slash = event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey;
  if (slash || (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey))) {
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
// Where the login has ended, a dialog asks for it; the page behind, with what was typed, stays as it is. The next form
// that is sent takes the new token from its cookie.
const askForLogin = () => {
  const made = document.querySelector("#login-again");
  if (!made || document.querySelector("dialog.login")) return;
  const dialog = made.content.firstElementChild.cloneNode(true);
  const form = dialog.querySelector("form"), problem = dialog.querySelector("[role=alert]");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const sent = new FormData(form);
    sent.set("csrfmiddlewaretoken", formToken() ?? "");
    try {
      const answer = await fetch(form.action, { method: "POST", body: sent });
      if (answer.ok && new URL(answer.url).pathname !== new URL(form.action).pathname) {
        dialog.close();
        document.body.dispatchEvent(new Event("refresh"));
      } else {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        problem.textContent = page.querySelector(".errorlist")?.textContent.trim() || "Not logged in. Log in in another tab.";
      }
    } catch {
      problem.textContent = "The portal does not answer. Try again.";
    }
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
};

// A connection that is lost is said at once; once it is back, the page refreshes what refreshes itself.
window.addEventListener("offline", (event) => stale(event, "No connection. Your input stays on this page."));
window.addEventListener("online", () => {
  document.querySelector("#stale")?.remove();
  document.body.dispatchEvent(new Event("refresh"));
});

document.addEventListener("htmx:sendError", stale);
document.addEventListener("htmx:responseError", stale);
document.addEventListener("htmx:beforeSwap", (event) => {
  const { xhr, pathInfo } = event.detail;
  if (!event.detail.isError) document.querySelector("#stale")?.remove();
  if (xhr.responseURL && new URL(xhr.responseURL).pathname !== pathInfo.requestPath.split("?")[0]) {
    event.detail.shouldSwap = false;
    if (typed) askForLogin();
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

// The search shows what it finds while one types, after the places and actions whose names have the words. Arrow keys go
// through them; Enter without a choice opens the page of all results.
const WAIT_FOR_WORDS = 200;
const find = document.querySelector("#find"), palette = document.querySelector("#palette");
if (find && palette) {
  const actions = [...document.querySelector("#actions").content.querySelectorAll("a")];
  let timer, latest = 0;
  const show = (parts) => {
    palette.replaceChildren(...parts);
    palette.hidden = !parts.length;
  };
  const matching = (words) => {
    const found = actions.filter((each) => words.every((word) => each.textContent.toLowerCase().includes(word)));
    if (!found.length) return [];
    const list = Object.assign(document.createElement("ul"), { className: "plain" });
    list.append(...found.slice(0, 8).map((each) => {
      const line = document.createElement("li");
      line.append(each.cloneNode(true));
      return line;
    }));
    return [list];
  };
  const search = async () => {
    const typedWords = find.value.trim(), mine = ++latest;
    const own = matching(typedWords.toLowerCase().split(/\s+/).filter(Boolean));
    show(own);
    if (typedWords.length < 2) return;
    try {
      const address = `${find.form.action}?q=${encodeURIComponent(typedWords)}`;
      const answer = await fetch(address, { headers: { "HX-Request": "true" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (mine === latest && answer.ok) show([...own, ...page.querySelectorAll("main > .card")]);
    } catch { /* the page of all results says what is wrong */ }
  };
  find.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(search, WAIT_FOR_WORDS); });
  find.addEventListener("focus", () => show(matching(find.value.toLowerCase().split(/\s+/).filter(Boolean))));
  const box = find.form;
  box.addEventListener("focusout", (event) => { if (!box.contains(event.relatedTarget)) show([]); });
  palette.addEventListener("mousedown", (event) => event.preventDefault());
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { show([]); find.focus(); }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || palette.hidden) return;
    const stops = [find, ...palette.querySelectorAll("a")];
    event.preventDefault();
    stops[(stops.indexOf(document.activeElement) + step + stops.length) % stops.length].focus();
  });
}
