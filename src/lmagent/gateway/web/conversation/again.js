// @ts-check
// Below a conversation: a button that continues a failed or stopped turn. In place of one: a session that does not exist.
import { takeAlong, unsent } from "../composer/composer.js";
import { Icon } from "../icons.js";
import { html } from "../lib.js";
import { chat, gone as texts } from "../words/conversation.js";

/** @type {Record<string, string>} */
const WAYS = {
  error: chat.tryAgain,
  blocked: chat.tryAgain,
  denied: chat.tryAgain,
  interrupted: chat.goOn,
  limit: chat.goOn,
};

/** @param {{session: import("../session/session.js").Session}} props */
export function Again({ session }) {
  const { state, outcome, waiting } = session.view.value;
  const words = Object.hasOwn(WAYS, outcome) ? WAYS[outcome] : "";
  if (!words || state !== "idle" || waiting.length || session.outbox.value.length) return null;
  const act = () => session.say([{ type: "text", text: `${words}.` }], "submit");
  return html`<div class="column"><div class="row"><button class="button" onClick=${act}><${Icon} name="refresh" />${words}</button></div></div>`;
}

/** @param {{session: import("../session/session.js").Session}} props */
export function Gone({ session }) {
  const words = unsent(session);
  return html`<div class="transcript"><div class="column"><div class="notice warning" role="alert"><${Icon} name="warning" /><div>
    <strong>${texts.heading}</strong> ${texts.about}
    <div class="small quiet">${session.problem.value}</div>
    ${words && html`<p>${texts.unsent}</p><blockquote class="wrap">${words}</blockquote>`}
    <p><a class="button" href="#/" onClick=${() => takeAlong(session)}>${texts.begin}</a></p></div></div></div></div>`;
}
