// @ts-check
// What stands in place of a session that does not exist, or not any more.
import { takeAlong, unsent } from "./composer.js";
import { Icon } from "./icons.js";
import { html } from "./lib.js";
import { gone as texts } from "./words/conversation.js";

/** @param {{session: import("./session.js").Session}} props */
export function Gone({ session }) {
  const words = unsent(session);
  return html`<div class="transcript"><div class="column"><div class="notice warning" role="alert"><${Icon} name="warning" /><div>
    <strong>${texts.heading}</strong> ${texts.about}
    <div class="small quiet">${session.problem.value}</div>
    ${words && html`<p>${texts.unsent}</p><blockquote class="wrap">${words}</blockquote>`}
    <p><a class="button" href="#/" onClick=${() => takeAlong(session)}>${texts.begin}</a></p></div></div></div></div>`;
}
