// @ts-check
// Notifications of the browser: asked for by a button, shown only while the page is not looked at; a click opens the session.
import { Icon } from "./icons.js";
import { html, signal } from "./lib.js";
import { go, sessionHref } from "./router.js";
import { toast } from "./state.js";
import { shell as words } from "./words/conversation.js";

const offered = "Notification" in globalThis && globalThis.isSecureContext;

/** What the browser allows; "unsupported" where it has none, or the page came over plain HTTP from elsewhere. */
export const permission = signal(offered ? Notification.permission : /** @type {const} */ ("unsupported"));

/** @param {string} session @param {string} about what of the session: one notification each @param {string} title @param {string} body */
export function notify(session, about, title, body) {
  if (permission.peek() !== "granted" || !document.hidden) return;
  const address = sessionHref(session);
  const how = { body, tag: `${session}:${about}`, icon: "/static/icon.svg", data: { address } };
  try {
    const shown = new Notification(title, how);
    shown.onclick = () => {
      focus();
      go(address);
      shown.close();
    };
  } catch { // browsers of phones leave it to the service worker (worker.js), which sends the click here
    navigator.serviceWorker?.ready.then((registration) => registration.showNotification(title, how));
  }
}

globalThis.navigator.serviceWorker?.addEventListener("message", ({ data }) => {
  if (typeof data?.address === "string" && data.address.startsWith("#/s/")) go(data.address);
});

async function ask() {
  permission.value = await Notification.requestPermission();
  if (permission.value === "denied") toast(words.notifyBlocked, "error", words.notifyBlockedFix);
}

/** Asks for them; gone once that is decided. */
export function NotifyButton() {
  if (permission.value !== "default") return null;
  return html`<button class="button plain square" aria-label=${words.notifyMe} title=${words.notifyMe} onClick=${ask}><${Icon} name="bell" /></button>`;
}
