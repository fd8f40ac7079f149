// @ts-check
// What was sent to a session and is not known to be in its log: kept in this browser, for all its tabs together.
import { store, stored } from "./theme.js";

/** @typedef {import("./session.js").Outgoing} Outgoing */

/** @param {string} session */
const keyOf = (session) => `lmagent.outbox.${session}`;

/** What this browser keeps for a session. @param {string} session @returns {Outgoing[]} */
export function outgoing(session) {
  try {
    return JSON.parse(stored(keyOf(session), "[]"));
  } catch {
    return []; // nothing that this page has written
  }
}

/**
 * Keep what is not known to be in the log yet, beside what other tabs keep.
 * @param {string} session
 * @param {Outgoing[]} before what this tab had until now
 * @param {Outgoing[]} after what it has from now on
 */
export function keepOutgoing(session, before, after) {
  const mine = new Set([...before, ...after].map(({ id }) => id));
  const others = outgoing(session).filter(({ id }) => !mine.has(id));
  const waiting = [...others, ...after.filter(({ seq }) => !seq)];
  store(keyOf(session), waiting.length ? JSON.stringify(waiting) : "");
}

/** The text of what was sent. @param {Outgoing} item */
export function wordsOf({ parts }) {
  return parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}
