// @ts-check
// Messages that were sent and have not reached the model: kept in this browser, for all its tabs together, and shown.
import { html } from "../lib.js";
import { store, storedValue } from "../session/state.js";
import { chat as words, common } from "../words/conversation.js";

/** @typedef {import("../session/session.js").Outgoing} Outgoing */

/** @param {string} session */
const keyOf = (session) => `lmagent.outbox.${session}`;

/** What this browser keeps for a session. @param {string} session @returns {Outgoing[]} */
export function outgoing(session) {
  return storedValue(keyOf(session)) ?? [];
}

/**
 * Keep the messages that are not known to be in the log yet, beside those of other tabs.
 * @param {string} session
 * @param {Outgoing[]} before this tab's messages until now
 * @param {Outgoing[]} after its messages from now on
 */
export function keepOutgoing(session, before, after) {
  const mine = new Set([...before, ...after].map(({ id }) => id));
  const others = outgoing(session).filter(({ id }) => !mine.has(id));
  const waiting = [...others, ...after.filter(({ seq }) => !seq)];
  store(keyOf(session), waiting.length ? JSON.stringify(waiting) : "");
}

/** The text of a message. @param {Outgoing} item */
export function wordsOf({ parts }) {
  return parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}

/** @typedef {import("../session/session.js").Session} Session */

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
