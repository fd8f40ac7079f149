// @ts-check
// How a session stands, by its line in the list: an icon, a word, and what kind of news that is.

/** @typedef {import("../icons.js").IconName} IconName */
/** @typedef {{icon: IconName, kind: "idle" | "busy" | "waiting" | "done" | "failed", words: string}} Standing */

/** @type {Record<string, Standing>} */
const WAITS = {
  approval: { icon: "shield", kind: "waiting", words: "needs approval" },
  plan: { icon: "tasks", kind: "waiting", words: "its plan needs approval" },
  question: { icon: "info", kind: "waiting", words: "has a question" },
  time: { icon: "clock", kind: "idle", words: "goes on later" },
};

/** @type {Record<string, Standing>} */
const STATES = {
  running: { icon: "pulse", kind: "busy", words: "working" },
  interrupted: { icon: "stop", kind: "idle", words: "interrupted" },
  waiting: { icon: "clock", kind: "idle", words: "goes on later" },
  idle: { icon: "list", kind: "idle", words: "not begun" },
  done: { icon: "check", kind: "done", words: "done" },
  error: { icon: "warning", kind: "failed", words: "failed" },
  limit: { icon: "warning", kind: "failed", words: "stopped at its limit" },
  blocked: { icon: "warning", kind: "failed", words: "blocked" },
  ok: { icon: "check", kind: "done", words: "done" },
  partial: { icon: "warning", kind: "idle", words: "done in part" },
};

/** @param {{status: string, waiting_for?: string}} row @returns {Standing} */
export function standing({ status, waiting_for = "" }) {
  return WAITS[waiting_for] ?? WAITS[status] ?? STATES[status] ?? { icon: "info", kind: "idle", words: status };
}
