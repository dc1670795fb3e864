// Tabs of a page: links to its parts, which work without this. It adds the roles of tabs for screen
// readers, and lets arrow keys, Home and End move between them.
for (const panels of document.querySelectorAll("[data-tabs]")) {
  const list = panels.querySelector(":scope > .tabs");
  const tabs = [...list.querySelectorAll("a[href^='#']")];
  const parts = [...panels.querySelectorAll(":scope > .panel")];
  const chosen = () => Math.max(parts.findIndex((part, at) => at && part.matches(":target, :has(:target)")), 0);

  const mark = () => {
    tabs.forEach((tab, at) => {
      tab.setAttribute("aria-selected", at === chosen());
      tab.tabIndex = at === chosen() ? 0 : -1;
    });
  };

  list.setAttribute("role", "tablist");
  tabs.forEach((tab, at) => {
    tab.setAttribute("role", "tab");
    tab.id ||= `tab-${tab.hash.slice(1)}`;
    parts[at].setAttribute("role", "tabpanel");
    parts[at].setAttribute("aria-labelledby", tab.id);
    parts[at].id ||= `panel-${tab.hash.slice(1)}`;
    tab.setAttribute("aria-controls", parts[at].id);
  });
  mark();
  addEventListener("hashchange", mark);

  // The address changes as by a click, but neither the focus nor the place of the page.
  const open = (tab) => {
    const top = scrollY;
    location.replace(tab.hash);
    tab.focus({ preventScroll: true });
    scrollTo(0, top);
    mark();
  };
  list.addEventListener("click", (event) => {
    const tab = event.target.closest("[role=tab]");
    if (!tab || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open(tab);
  });
  list.addEventListener("keydown", (event) => {
    const at = tabs.indexOf(event.target);
    const last = tabs.length - 1;
    const next = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at ? at - 1 : last, Home: 0, End: last };
    if (at < 0 || !(event.key in next)) return;
    event.preventDefault();
    open(tabs[next[event.key]]);
  });
}
