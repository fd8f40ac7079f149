// @ts-check
// Notifications: in words for screen readers, and by the browser while the page is hidden.
import { html, signal } from "./lib.js";
import { Square } from "./parts.js";
import { go, sessionHref } from "./router.js";
import { announced, toast } from "./session/state.js";
import { busy } from "./session/status.js";
import { outcomes, shell as words } from "./words/conversation.js";

const offered = "Notification" in globalThis && globalThis.isSecureContext;

/** The browser's permission; "unsupported" where it has no notifications, or the page came over plain HTTP from elsewhere. */
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

/** Let the browser ask for the permission. */
export async function askToNotify() {
  permission.value = await Notification.requestPermission();
  if (permission.value === "denied") toast(words.notifyBlocked, "error", words.notifyBlockedFix);
}

/** Asks for them; gone once that is decided. */
export function NotifyButton() {
  if (permission.value !== "default") return null;
  return html`<${Square} icon="bell" label=${words.notifyMe} onClick=${askToNotify} />`;
}

/** @typedef {import("./session/wire.js").View} View */

/** @param {string} session @param {View} before @param {View} after */
export function tell(session, before, after) {
  const title = after.title || "lmagent";
  const asked = after.approvals.find((item) => !before.approvals.includes(item));
  if (asked) {
    announced.value = words.approvalWaits(asked.summary);
    notify(session, asked.id, words.approvalTitle(title), asked.summary);
  } else if (after.plan && !before.plan) {
    announced.value = words.planWaits(after.plan["plan"].title);
    notify(session, "plan", words.planTitle(title), after.plan["plan"].title);
  } else if (after.outcome && !before.outcome) {
    const ended = outcomes[/** @type {keyof typeof outcomes} */ (after.outcome)] ?? after.outcome;
    announced.value = ended;
    notify(session, "turn", `${title}: ${ended}`, lastWords(after));
  } else if (busy(after) && !busy(before)) announced.value = words.working;
}

/** The end of the answer. @param {View} view */
function lastWords(view) {
  const said = view.blocks.findLast((block) => block.kind === "text" || block.kind === "notice");
  return said ? said.text.slice(0, 160) : "";
}
