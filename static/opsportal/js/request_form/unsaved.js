// What is typed in the form of a signed request is not saved by itself, as that would withdraw
// signatures. The browser keeps it until it is saved, and offers it when the user comes back.
const signedForm = document.querySelector("form[data-kept]");
if (signedForm) {
  const PREFIX = "opsportal.unsaved ";
  const DAYS = 7;
  const WAIT = 300;
  const NOT_TYPED = ["csrfmiddlewaretoken", "version", "touched", "do"];
  const name = PREFIX + signedForm.dataset.kept;
  const offer = document.querySelector("#kept");
  const note = document.querySelector("#autosave");
  let timer;
  let leaving = false;

  const fields = () => {
    return [...new FormData(signedForm)].filter(([field]) => !NOT_TYPED.includes(field));
  };
  const isSame = (left, right) => JSON.stringify(left) === JSON.stringify(right);
  const read = (key) => {
    try {
      const kept = JSON.parse(localStorage.getItem(key));
      return kept && Date.now() - kept.at < DAYS * 86_400_000 ? kept : undefined;
    } catch {
      return undefined;
    }
  };
  const forget = () => {
    clearTimeout(timer);
    localStorage.removeItem(name);
    note.textContent = "";
  };

  // After a button that does not save, such as "Add stage", the page shows what was typed, not what
  // is saved.
  const isUnsaved = "unsaved" in signedForm.dataset;
  const shown = fields();
  const saved = isUnsaved ? read(name)?.saved : shown;
  const version = (isUnsaved && read(name)?.version) || signedForm.elements.version.value;

  // `sent` is whether a button was pressed since: it was saved if the user's last saved version is
  // another one then.
  const keep = (sent = false) => {
    clearTimeout(timer);
    const typed = fields();
    if (isSame(typed, saved)) {
      if (offer.hidden) forget();
      return;
    }
    const own = signedForm.dataset.saved;
    try {
      const unsaved = { at: Date.now(), saved, version, typed, own, sent };
      localStorage.setItem(name, JSON.stringify(unsaved));
      note.textContent = "Not saved yet. This browser keeps what you type.";
    } catch {
      note.textContent = "Not saved yet. This browser cannot keep what you type: "
        + "save before you leave.";
    }
  };

  for (const key of Object.keys(localStorage)) {
    if (key.startsWith(PREFIX) && !read(key)) localStorage.removeItem(key);
  }
  const kept = read(name);
  const wasSaved = kept?.sent && kept.own !== signedForm.dataset.saved;
  if (isUnsaved) keep();
  else if (kept && (wasSaved || isSame(kept.typed, shown))) forget();
  else if (kept) {
    offer.hidden = false;
    offer.querySelector("span").hidden = isSame(kept.saved, shown);
  }

  // The server shows what was typed as it does after "Run checks". A signature makes a new version
  // without a change: if the request has changed since, the form keeps its old version, so that
  // saving it overwrites nothing.
  offer.querySelector("[name=restore]").addEventListener("click", () => {
    const current = signedForm.elements.version.value;
    const copy = document.createElement("form");
    copy.method = "post";
    copy.action = signedForm.action;
    copy.hidden = true;
    const sent = [
      ...kept.typed,
      ["version", isSame(kept.saved, shown) ? current : kept.version],
      ["do", "check"],
      ["csrfmiddlewaretoken", formToken() ?? ""],
    ];
    for (const [field, value] of sent) {
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
  window.addEventListener("pagehide", () => {
    if (!leaving && timer) keep();
  });
  window.addEventListener("pageshow", () => {
    leaving = false;
  });
}
