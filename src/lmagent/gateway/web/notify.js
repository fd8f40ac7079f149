// @ts-check
// Notifications of the browser: asked for by a button, shown only while the page is not looked at.
import { Icon } from "./icons.js";
import { html, signal } from "./lib.js";
import { toast } from "./state.js";

const offered = "Notification" in globalThis && globalThis.isSecureContext;

/** What the browser allows; "unsupported" where it has none, or the page came over plain HTTP from elsewhere. */
export const permission = signal(offered ? Notification.permission : /** @type {const} */ ("unsupported"));

/** @param {string} title @param {string} body @param {string} tag one notification a tag */
export function notify(title, body, tag) {
  if (permission.peek() !== "granted" || !document.hidden) return;
  try {
    const shown = new Notification(title, { body, tag, icon: "/static/icon.svg" });
    shown.onclick = () => {
      focus();
      shown.close();
    };
  } catch {
    // Some browsers of phones have the class, and allow it to service workers alone.
  }
}

async function ask() {
  permission.value = await Notification.requestPermission();
  if (permission.value === "denied") toast("the browser blocks notifications of this page", "error", "its settings for this site allow them again");
}

/** Asks for them; gone once that is decided. */
export function NotifyButton() {
  if (permission.value !== "default") return null;
  const words = "Notify me when it waits for me or is finished";
  return html`<button class="button plain square" aria-label=${words} title=${words} onClick=${ask}><${Icon} name="bell" /></button>`;
}
