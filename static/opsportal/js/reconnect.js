// The page that says that the portal is unavailable waits for it, and leads back: to the page that was
// requested, or to that of the form that was sent, where `unsent.js` puts back what was typed.
const KEY = "unsent";
const WAIT = 2000;
const main = document.querySelector("main");
const kept = JSON.parse(sessionStorage.getItem(KEY) || "null");
const isForm = !main.hasAttribute("data-repeatable");

if (isForm && kept) sessionStorage.setItem(KEY, JSON.stringify({ ...kept, failed: true }));

const isBack = async () => {
  try {
    const response = await fetch("/readyz", { signal: AbortSignal.timeout(10_000) });
    const { checks } = await response.json();
    return checks.every(({ name, ok }) => ok || name === "queue");
  } catch {
    return false;
  }
};

const waitForPortal = async () => {
  if (!await isBack()) setTimeout(waitForPortal, WAIT);
  else if (!isForm) location.reload();
  else if (kept) location.replace(kept.page);
};

if (!isForm || kept) {
  document.querySelector("#reconnecting").hidden = false;
  setTimeout(waitForPortal, WAIT);
}
