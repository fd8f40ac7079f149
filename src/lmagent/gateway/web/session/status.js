// @ts-check
// The state of a session in words: the same as the terminal's line under the prompt.
import { clock, duration, figure } from "../parts.js";
import { readingSeconds } from "./pace.js";
import { header as texts, outcomes } from "../words/conversation.js";

/** @typedef {import("./wire.js").View} View */

const NOTICEABLE = 2;
const LONG = 8;

/** Whether a turn runs. @param {View} view */
export function busy(view) {
  return view.state !== "idle";
}

/** Whether it waits for the user. @param {View} view */
function waitsForYou(view) {
  return view.approvals.length > 0 || view.plan !== null || (view.state === "idle" && view.outcome === "question");
}

/** @typedef {{kind: "idle" | "busy" | "waiting" | "done" | "failed", words: string, detail: string}} Status */

/**
 * @param {View} view
 * @param {number} elapsed seconds since the state began
 * @param {import("./wire.js").Event | null} retry the last `retrying`
 * @returns {Status}
 */
export function statusOf(view, elapsed, retry) {
  if (waitsForYou(view)) return { kind: "waiting", words: view.state === "idle" && !view.plan ? outcomes.question : texts.needsApproval, detail: "" };
  if (view.state === "idle") return resting(view);
  if (view.state === "retrying") {
    return { kind: "busy", words: texts.retrying, detail: retry ? texts.retryIn(retry["reason"], duration(retry["delay"])) : "" };
  }
  if (view.state === "queued") return { kind: "busy", words: texts.queued, detail: texts.queuedAbout };
  if (view.progress !== null) {
    return { kind: "busy", words: texts.reading, detail: texts.readingShare(Math.round(view.progress * 100)) + left(view.seconds_left) };
  }
  const detail = elapsed >= NOTICEABLE ? duration(Math.floor(elapsed)) : "";
  const words = texts.states[view.state] ?? view.state;
  return { kind: "busy", words, detail: view.state === "thinking" && !view.thinking ? waiting(view, elapsed) : detail };
}

/** @param {View} view @returns {Status} */
function resting(view) {
  if (view.until) {
    const left = Math.max(0, view.until - Date.now() / 1000);
    return { kind: "idle", words: texts.waitsUntil(clock(view.until)), detail: texts.inTime(duration(Math.round(left))) };
  }
  if (!view.outcome) return { kind: "idle", words: texts.idle, detail: "" };
  const words = outcomes[/** @type {keyof typeof outcomes} */ (view.outcome)] ?? view.outcome;
  if (view.outcome === "done") return { kind: "done", words, detail: "" };
  const failed = ["error", "limit", "blocked", "denied"].includes(view.outcome);
  return { kind: failed ? "failed" : "idle", words, detail: "" };
}

/** Nothing has come yet: the server's probable state. @param {View} view @param {number} elapsed */
function waiting(view, elapsed) {
  const reading = readingSeconds(view.pace);
  if (reading >= NOTICEABLE) return texts.readingTokens(figure(view.pace.fresh)) + left(Math.max(0, reading - elapsed));
  if (elapsed >= LONG && !view.totals.steps) return texts.loading;
  return elapsed >= NOTICEABLE ? duration(Math.floor(elapsed)) : "";
}

/** @param {number | null} seconds */
function left(seconds) {
  return seconds === null ? "" : texts.secondsLeft(Math.round(seconds));
}
