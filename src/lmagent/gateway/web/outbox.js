// @ts-check
// What was sent and is not in the log yet.
import { html } from "./lib.js";
import { wordsOf } from "./session.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./session.js").Outgoing} Outgoing */

/** @param {{session: Session}} props */
export function Outbox({ session }) {
  const items = session.outbox.value;
  if (!items.length) return null;
  return html`<div class="column">${items.map((item) => html`<${Waiting} key=${item.id} session=${session} item=${item} />`)}</div>`;
}

/** @param {{session: Session, item: Outgoing}} props */
function Waiting({ session, item }) {
  return html`<article class="block user" aria-label="You">
    <div class="bubble sending">${wordsOf(item) || "(pictures)"}</div>
    ${item.error
      ? html`<p class="small row" role="alert"><span class="grow">Not sent: ${item.error}</span>
          <button class="button" onClick=${() => session.say(item.parts, item.type, item.id)}>Try again</button>
          <button class="button plain" onClick=${() => session.sent(item.id)}>Drop it</button></p>`
      : html`<p class="small quiet">sending …</p>`}
  </article>`;
}
