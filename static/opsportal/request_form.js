// The request form saves itself as one types, and stages move with Alt and the arrow keys. Both work without it, by buttons.
const form = document.querySelector("form[data-autosave]");

// A required field is a problem once one was in it; until then it is only counted. The step in which one is, is marked.
const sections = document.querySelector("form .formgrid");
if (sections) {
  const touched = sections.querySelector("input[name=touched]");
  let here;
  const mark = () => {
    for (const link of document.querySelectorAll("#steps a")) {
      link.toggleAttribute("aria-current", link.getAttribute("href") === here);
      if (link.hasAttribute("aria-current")) link.setAttribute("aria-current", "step");
    }
  };
  sections.addEventListener("focusin", (event) => {
    const section = event.target.closest("[data-stage], .sec");
    if (section) here = `#${section.id}`;
    mark();
  });
  sections.addEventListener("focusout", ({ target }) => {
    if (target.id && !touched.value.split(" ").includes(target.id)) touched.value = `${touched.value} ${target.id}`.trim();
  });
  document.addEventListener("htmx:oobAfterSwap", mark);

  // The errors that the checks find are also shown at their fields, in place of those that the page came with.
  const describe = (field, id, isDescribed) => {
    const ids = (field.getAttribute("aria-describedby") || "").split(" ").filter((other) => other && other !== id);
    if (isDescribed) ids.push(id);
    if (ids.length) field.setAttribute("aria-describedby", ids.join(" "));
    else field.removeAttribute("aria-describedby");
  };
  const showAtFields = () => {
    if (!sections.querySelector("#checks .live")) return;  // no checks ran yet
    for (const list of sections.querySelectorAll(".errorlist:not(.advice)")) list.remove();
    for (const field of sections.querySelectorAll("[aria-invalid]")) {
      field.removeAttribute("aria-invalid");
      describe(field, `${field.id}_error`, false);
    }
    for (const error of sections.querySelectorAll("#checks li.e")) {
      for (const link of error.querySelectorAll("a")) {
        const field = document.getElementById(link.hash.slice(1));
        const box = field?.closest(".field");
        if (!box || field.hidden) continue;
        const id = `${field.id}_error`;
        let list = document.getElementById(id);
        if (!list) {
          list = Object.assign(document.createElement("ul"), { className: "errorlist", id });
          box.append(list);
          field.setAttribute("aria-invalid", "true");
          describe(field, id, true);
        }
        const item = document.createElement("li");
        item.textContent = error.querySelector("[data-message]").textContent;
        list.append(item);
      }
    }
  };
  document.addEventListener("htmx:afterSettle", showAtFields);
  // A link to a field that is folded opens what it is in.
  const open = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    for (let fold = target && target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    if (target) target.scrollIntoView();
  };
  window.addEventListener("hashchange", open);

  // What earlier requests had in such a field is offered as one types.
  let typing;
  const offer = async ({ list, value }) => {
    const response = await fetch(`${list.dataset.url}&${new URLSearchParams({ text: value })}`).catch(() => undefined);
    if (!response?.ok || response.redirected) return;
    const { values } = await response.json();
    list.replaceChildren(...values.map((one) => new Option("", one)));
  };
  for (const event of ["focusin", "input"]) {
    sections.addEventListener(event, ({ target }) => {
      if (!target.list) return;
      clearTimeout(typing);
      typing = setTimeout(offer, 200, target);
    });
  }
}

// What is typed in the form of a signed request is not saved by itself, as that would withdraw signatures. The browser
// keeps it until it is saved, and offers it when the user comes back.
const signedForm = document.querySelector("form[data-kept]");
if (signedForm) {
  const PREFIX = "opsportal.unsaved ", DAYS = 7, WAIT = 300;
  const NOT_TYPED = ["csrfmiddlewaretoken", "version", "touched", "do"];
  const name = PREFIX + signedForm.dataset.kept;
  const offer = document.querySelector("#kept"), note = document.querySelector("#autosave");
  let timer, leaving = false;

  const fields = () => [...new FormData(signedForm)].filter(([field]) => !NOT_TYPED.includes(field));
  const isSame = (one, other) => JSON.stringify(one) === JSON.stringify(other);
  const read = (key) => {
    try {
      const kept = JSON.parse(localStorage.getItem(key));
      return kept && Date.now() - kept.at < DAYS * 86_400_000 ? kept : undefined;
    } catch {
      return undefined;
    }
  };
  const forget = () => { clearTimeout(timer); localStorage.removeItem(name); note.textContent = ""; };

  // After a button that does not save, such as "Add stage", the page shows what was typed, not what is saved.
  const isUnsaved = "unsaved" in signedForm.dataset;
  const shown = fields();
  const saved = isUnsaved ? read(name)?.saved : shown;
  const version = (isUnsaved && read(name)?.version) || signedForm.elements.version.value;

  // `sent` is whether a button was pressed since: it was saved if the user's last saved version is another one then.
  const keep = (sent = false) => {
    clearTimeout(timer);
    const typed = fields();
    if (isSame(typed, saved)) {
      if (offer.hidden) forget();
      return;
    }
    const own = signedForm.dataset.saved;
    try {
      localStorage.setItem(name, JSON.stringify({ at: Date.now(), saved, version, typed, own, sent }));
      note.textContent = "Not saved yet. This browser keeps what you type.";
    } catch {
      note.textContent = "Not saved yet. This browser cannot keep what you type: save before you leave.";
    }
  };

  for (const key of Object.keys(localStorage)) if (key.startsWith(PREFIX) && !read(key)) localStorage.removeItem(key);
  const kept = read(name);
  if (isUnsaved) keep();
  else if (kept && (isSame(kept.typed, shown) || (kept.sent && kept.own !== signedForm.dataset.saved))) forget();
  else if (kept) {
    offer.hidden = false;
    offer.querySelector("span").hidden = isSame(kept.saved, shown);
  }

  // The server shows what was typed as it does after "Run checks". A signature makes a new version without a change:
  // if the request has changed since, the form keeps its old version, so that saving it overwrites nothing.
  offer.querySelector("[name=restore]").addEventListener("click", () => {
    const current = signedForm.elements.version.value;
    const copy = Object.assign(document.createElement("form"), { method: "post", action: signedForm.action, hidden: true });
    const sent = [...kept.typed, ["version", isSame(kept.saved, shown) ? current : kept.version], ["do", "check"]];
    for (const [field, value] of [...sent, ["csrfmiddlewaretoken", formToken() ?? ""]]) {
      const input = document.createElement("textarea");  // which keeps line breaks
      input.name = field;
      input.value = value;
      copy.append(input);
    }
    leaving = true;
    localStorage.setItem(name, JSON.stringify({ ...kept, sent: false }));
    document.body.append(copy);
    copy.submit();
  });
  offer.querySelector("[name=discard]").addEventListener("click", () => {
    offer.hidden = true;
    forget();
  });

  signedForm.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(keep, WAIT);
  });
  signedForm.addEventListener("submit", () => {
    leaving = true;
    keep(true);
  });
  window.addEventListener("pagehide", () => { if (!leaving && timer) keep(); });
  window.addEventListener("pageshow", () => { leaving = false; });
}

if (form) {
  const note = document.querySelector("#autosave");
  const WAIT = 2000;
  // A browser sends at most 64 KiB for pages that are left; a field takes about 150 bytes beside its value.
  const KEPT = 60_000, FIELD_SIZE = 150;
  const type = form.elements.workflow;
  const shownType = form.elements.shown_workflow?.value;
  let timer, running, stopped = false, moved = false, failed = false, leaving = false;
  // How many inputs were made, and how many of them the last save has sent.
  let inputs = 0, sentInputs = 0;

  const say = (text, isProblem = false) => {
    note.textContent = text;
    note.classList.toggle("problem", isProblem);
  };

  // The new form is now the form of its draft. A draft of another experiment has another key: its page is loaded, unless
  // more was typed meanwhile, which the next save sends first.
  const become = (answer, typed) => {
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
    const sent = new FormData(form), typed = inputs;
    sentInputs = typed;
    failed = true;
    sent.set("do", "autosave");
    if (formToken()) sent.set("csrfmiddlewaretoken", formToken());
    say("saving…");
    try {
      // The browser finishes a small request even if the page is left meanwhile.
      const size = [...sent.values()].reduce((sum, value) => sum + 2 * value.length + FIELD_SIZE, 0);
      const response = await fetch(form.action, { method: "POST", body: sent, redirect: "error", keepalive: size < KEPT });
      const answer = await response.json();
      if (answer.saved) {
        failed = false;
        form.elements.version.value = answer.version;
        become(answer, typed);
        say(`${answer.key} saved ${answer.saved}`);
      } else {
        stopped = Boolean(answer.conflict);
        say(answer.conflict || answer.problem, true);
      }
    } catch {
      say("Not saved: the portal is unreachable, or you are logged out. Your input stays here: log in in another tab and continue.", true);
    }
  };

  // Saves come one after the other; `running` is there while one is.
  const start = () => {
    const mine = (running || Promise.resolve()).then(save).then(() => { if (running === mine) running = undefined; });
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

  // Input that could not be sent is sent once the user has logged in again, or the connection is back.
  const saveNow = () => {
    clearTimeout(timer);
    if (mayBeSaved() && ((failed && !running) || inputs > sentInputs)) start();
  };
  document.body.addEventListener("refresh", saveNow);

  // A page that is left saves first. It asks only if that is impossible: after a failed save, or while another one runs.
  window.addEventListener("beforeunload", (event) => {
    if (leaving) return;
    const isUnsent = inputs > sentInputs;
    if ((failed && !running) || (isUnsent && (running || !mayBeSaved()))) event.preventDefault();
    else if (isUnsent) saveNow();
  });
  window.addEventListener("pagehide", () => { if (!leaving && !running && inputs > sentInputs) saveNow(); });

  window.addEventListener("pageshow", () => { leaving = false; });

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
    const isPlain = event.button === 0 && !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);
    if (!link || !isPlain || event.defaultPrevented || link.target || link.pathname === location.pathname) return;
    saveBefore(event, () => location.assign(link.href));
  });
  document.addEventListener("submit", (event) => {
    if (event.target === form || event.defaultPrevented) return;
    saveBefore(event, () => event.target.requestSubmit(event.submitter));
  });

  // A button waits for the save that is under way, so that no draft is made twice and no version is stale. It is pressed
  // again in a task of its own: a form ignores what is asked of it while it tells of being submitted. The panel of the
  // checks may have come anew meanwhile, so that the button of the same value is another one.
  let pressed, waits = false;
  form.addEventListener("submit", (event) => {
    clearTimeout(timer);
    leaving = true;
    if (!running) return;
    event.preventDefault();
    pressed = event.submitter;
    if (waits) return;
    waits = true;
    running.then(() => setTimeout(() => {
      const there = !pressed || pressed.isConnected;
      waits = false;
      form.requestSubmit(there ? pressed : form.querySelector(`button[value="${CSS.escape(pressed.value)}"]`));
    }));
  });

  document.addEventListener("keydown", (event) => {
    const direction = { ArrowUp: "up", ArrowDown: "down" }[event.key];
    const stage = event.altKey && direction && event.target.closest?.("fieldset[data-stage]");
    const button = stage && stage.querySelector(`button[value^="${direction}-"]`);
    if (button) {
      event.preventDefault();
      button.click();
    }
  });
}
