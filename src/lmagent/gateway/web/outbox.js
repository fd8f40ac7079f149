// @ts-check
// What was sent and has not reached the model.
import { html } from "./lib.js";
import { wordsOf } from "./outgoing.js";
import { chat as words, common } from "./words/conversation.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./session.js").Outgoing} Outgoing */

const WAITS = /** @type {Record<string, string>} */ ({
  queue: words.queued,
  steer: words.steered,
});

/** Messages that wait for the running turn, above the box: in view wherever one reads. @param {{session: Session | null}} props */
export function Queued({ session }) {
  const items = session?.view.value.waiting.filter(({ delivery }) => WAITS[delivery]) ?? [];
  if (!items.length) return null;
  return html`<ul class="bare queued" aria-label=${words.waitingMessages}>${items.map((item) => html`<li class="row" key=${item.id}>
    <div class="grow"><div class="cut">${item.text || words.picturesOnly}</div><div class="small quiet">${WAITS[item.delivery]}</div></div>
    <button class="button plain" onClick=${() => session?.takeBack(item)}>${common.cancel}</button></li>`)}</ul>`;
}

/** @param {{session: Session}} props */
export function Outbox({ session }) {
  const items = session.outbox.value;
  if (!items.length) return null;
  return html`<div class="column">${items.map((item) => html`<${Waiting} key=${item.id} session=${session} item=${item} />`)}</div>`;
}

/** @param {{session: Session, item: Outgoing}} props */
function Waiting({ session, item }) {
  return html`<article class="block user" aria-label=${words.you}>
    <div class="bubble sending">${wordsOf(item) || words.picturesOnly}</div>
    ${item.error
      ? html`<p class="small row" role="alert"><span class="grow">${words.notSent(item.error)}</span>
          <button class="button" onClick=${() => session.say(item.parts, item.type, item.id)}>${words.tryAgain}</button>
          <button class="button plain" onClick=${() => session.sent(item.id)}>${words.discard}</button></p>`
      : html`<p class="small quiet">${words.sending}</p>`}
  </article>`;
}
