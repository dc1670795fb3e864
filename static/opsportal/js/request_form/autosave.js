// The form of a draft saves itself as one types. Without this file it is saved by its buttons.
const form = document.querySelector("form[data-autosave]");

if (form) {
  const note = document.querySelector("#autosave");
  const WAIT = 2000;
  // How long after a save that did not reach the portal it is tried again.
  const RETRY = 15_000;
  // A save that got no answer for so long must not keep the later ones waiting.
  const PATIENCE = 45_000;
  // A browser sends at most 64 KiB for pages that are left; a field takes about 150 bytes beside
  // its value.
  const MOST_BYTES = 60_000;
  const FIELD_BYTES = 150;
  const UNREACHABLE = "Not saved: the portal is unreachable, or you are logged out. "
    + "Your input stays here: log in in another tab and continue.";
  const type = form.elements.workflow;
  const shownType = form.elements.shown_workflow?.value;
  let timer;
  let running;  // the save that is under way, if any
  let stopped = false;
  let moved = false;
  let failed = false;
  let leaving = false;
  // How many inputs were made, and how many of them the last save has sent.
  let inputs = 0;
  let sentInputs = 0;

  const say = (text, isProblem = false) => {
    note.textContent = text;
    note.classList.toggle("problem", isProblem);
  };

  // The new form is now the form of its draft. A draft of another experiment has another key: its
  // page is loaded, unless more was typed meanwhile, which the next save sends first.
  const showDraft = (answer, typed) => {
    if (answer.created) {
      form.action = answer.url;
      history.replaceState(null, "", answer.url);
    } else if (answer.url !== new URL(form.action).pathname) {
      form.action = answer.url;
      moved = true;
    }
    if (moved && typed === inputs) location.replace(answer.url);
  };

  const save = async () => {
    const sent = new FormData(form);
    const typed = inputs;
    sentInputs = typed;
    failed = true;
    sent.set("do", "autosave");
    if (formToken()) sent.set("csrfmiddlewaretoken", formToken());
    say("saving…");
    try {
      // The browser finishes a small request even if the page is left meanwhile.
      let size = 0;
      for (const value of sent.values()) size += 2 * value.length + FIELD_BYTES;
      const response = await fetch(form.action, {
        method: "POST",
        body: sent,
        redirect: "error",
        keepalive: size < MOST_BYTES,
        signal: AbortSignal.timeout(PATIENCE),
      });
      const answer = await response.json();
      if (answer.saved) {
        failed = false;
        form.elements.version.value = answer.version;
        showDraft(answer, typed);
        say(`${answer.key} saved ${answer.saved}`);
      } else {
        stopped = Boolean(answer.conflict);
        say(answer.conflict || answer.problem, true);
      }
    } catch {
      say(UNREACHABLE, true);
      clearTimeout(timer);
      timer = setTimeout(saveNow, RETRY);
    }
  };

  // Saves come one after the other.
  const start = () => {
    const before = running || Promise.resolve();
    const mine = before.then(save).then(() => {
      if (running === mine) running = undefined;
    });
    running = mine;
  };

  // Another type is chosen but its fields are not shown yet: that is no request to save.
  const mayBeSaved = () => !stopped && (!type || type.value === shownType);
  const later = () => {
    inputs += 1;
    clearTimeout(timer);
    if (mayBeSaved()) timer = setTimeout(start, WAIT);
  };
  form.addEventListener("input", later);

  // Input that could not be sent is sent once the user has logged in again, or the connection is
  // back.
  const saveNow = () => {
    clearTimeout(timer);
    if (mayBeSaved() && ((failed && !running) || inputs > sentInputs)) start();
  };
  document.body.addEventListener("refresh", saveNow);

  // A page that is left saves first. It asks only if that is impossible: after a failed save, or
  // while another one runs.
  window.addEventListener("beforeunload", (event) => {
    if (leaving) return;
    const isUnsent = inputs > sentInputs;
    if ((failed && !running) || (isUnsent && (running || !mayBeSaved()))) event.preventDefault();
    else if (isUnsent) saveNow();
  });
  window.addEventListener("pagehide", () => {
    if (!leaving && !running && inputs > sentInputs) saveNow();
  });
  window.addEventListener("pageshow", () => {
    leaving = false;
  });

  // A link or another form waits for the save, so that the next page shows what was typed.
  const saveBefore = async (event, go) => {
    saveNow();
    if (!running) return;
    event.preventDefault();
    await running;
    go();
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    const hasKey = event.ctrlKey || event.metaKey || event.shiftKey || event.altKey;
    const isPlain = event.button === 0 && !hasKey && !event.defaultPrevented;
    if (!link || !isPlain || link.target || link.pathname === location.pathname) return;
    saveBefore(event, () => location.assign(link.href));
  });
  document.addEventListener("submit", (event) => {
    if (event.target === form || event.defaultPrevented) return;
    saveBefore(event, () => event.target.requestSubmit(event.submitter));
  });

  // A button waits for the save that is under way, so that no draft is made twice and no version is
  // stale. It is pressed again in a separate task, because a form ignores clicks while it dispatches
  // `submit`. The panel of the checks may have been replaced meanwhile, so the button is looked up
  // by its value.
  let pressed;
  let waits = false;
  form.addEventListener("submit", (event) => {
    clearTimeout(timer);
    leaving = true;
    if (!running) return;
    event.preventDefault();
    pressed = event.submitter;
    if (waits) return;
    waits = true;
    running.then(() => setTimeout(() => {
      waits = false;
      if (pressed && !pressed.isConnected) {
        pressed = form.querySelector(`button[value="${CSS.escape(pressed.value)}"]`);
      }
      form.requestSubmit(pressed);
    }));
  });
}
