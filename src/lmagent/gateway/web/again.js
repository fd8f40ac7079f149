// @ts-check
// A turn that failed or was stopped: the button that has the agent take it up again.
import { Icon } from "./icons.js";
import { html } from "./lib.js";
import { chat } from "./words/conversation.js";

/** @type {Record<string, string>} */
const WAYS = {
  error: chat.tryAgain,
  blocked: chat.tryAgain,
  denied: chat.tryAgain,
  interrupted: chat.goOn,
  limit: chat.goOn,
};

/** @param {{session: import("./session.js").Session}} props */
export function Again({ session }) {
  const { state, outcome, waiting } = session.view.value;
  const words = Object.hasOwn(WAYS, outcome) ? WAYS[outcome] : "";
  if (!words || state !== "idle" || waiting.length || session.outbox.value.length) return null;
  const act = () => session.say([{ type: "text", text: `${words}.` }], "submit");
  return html`<div class="column"><div class="row"><button class="button" onClick=${act}><${Icon} name="refresh" />${words}</button></div></div>`;
}
