// @ts-check
// What stands in place of a session that does not exist, or not any more.
import { takeAlong, unsent } from "./composer.js";
import { Icon } from "./icons.js";
import { html } from "./lib.js";

/** @param {{session: import("./session.js").Session}} props */
export function Gone({ session }) {
  const words = unsent(session);
  return html`<div class="transcript"><div class="column"><div class="notice warning" role="alert"><${Icon} name="warning" /><div>
    <strong>This session is not there.</strong> It may have been deleted in another window or in a terminal.
    <div class="small quiet">${session.problem.value}</div>
    ${words && html`<p>What you wrote and it did not get, which goes along to a new one:</p><blockquote class="wrap">${words}</blockquote>`}
    <p><a class="button" href="#/" onClick=${() => takeAlong(session)}>Begin a new one</a></p></div></div></div></div>`;
}
