// @ts-check
// How a session stands, by its line in the list: an icon, a word, and what kind of news that is.
import { sessions } from "../words/conversation.js";

const words = sessions.states;

/** @typedef {import("../icons.js").IconName} IconName */
/** @typedef {{icon: IconName, kind: "idle" | "busy" | "waiting" | "done" | "failed", words: string}} Standing */

/** @type {Record<string, Standing>} */
const WAITS = {
  approval: { icon: "shield", kind: "waiting", words: words.approval },
  plan: { icon: "tasks", kind: "waiting", words: words.plan },
  question: { icon: "info", kind: "waiting", words: words.question },
  time: { icon: "clock", kind: "idle", words: words.time },
};

/** @type {Record<string, Standing>} */
const STATES = {
  running: { icon: "pulse", kind: "busy", words: words.running },
  interrupted: { icon: "stop", kind: "idle", words: words.interrupted },
  waiting: { icon: "clock", kind: "idle", words: words.time },
  idle: { icon: "list", kind: "idle", words: words.idle },
  done: { icon: "check", kind: "done", words: words.done },
  error: { icon: "warning", kind: "failed", words: words.error },
  limit: { icon: "warning", kind: "failed", words: words.limit },
  blocked: { icon: "warning", kind: "failed", words: words.blocked },
  ok: { icon: "check", kind: "done", words: words.done },
  partial: { icon: "warning", kind: "idle", words: words.partial },
};

/** @param {{status: string, waiting_for?: string}} row @returns {Standing} */
export function standing({ status, waiting_for = "" }) {
  return WAITS[waiting_for] ?? WAITS[status] ?? STATES[status] ?? { icon: "info", kind: "idle", words: status };
}
