// @ts-check
// Moments as people say them.
import { html, useEffect, useState } from "../lib.js";
import { common } from "../words/conversation.js";

const STEPS = /** @type {const} */ ([[60, 1, "s"], [3600, 60, "min"], [86_400, 3600, "h"], [7 * 86_400, 86_400, "d"]]);

/** How long ago, or in how long: "5 min ago", "in 2 h", or the day. @param {number} moment Unix seconds @param {number} [now] */
export function ago(moment, now = Date.now() / 1000) {
  const away = Math.abs(now - moment);
  if (away < 10) return common.now;
  for (const [below, unit, name] of STEPS) {
    if (away >= below) continue;
    const span = `${Math.floor(away / unit)} ${name}`;
    return moment > now ? common.ahead(span) : common.ago(span);
  }
  return new Date(moment * 1000).toLocaleDateString([], { year: "numeric", month: "short", day: "numeric" });
}

/** The same, and exactly for who asks. @param {{moment: number}} props Unix seconds */
export function When({ moment }) {
  const there = new Date(moment * 1000);
  return html`<time datetime=${there.toISOString()} title=${there.toLocaleString()}>${ago(moment)}</time>`;
}

/** Draw again each `seconds`, for what says how long ago something was. @param {number} [seconds] */
export function useTicking(seconds = 30) {
  const [, setCount] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setCount((count) => count + 1), seconds * 1000);
    return () => clearInterval(timer);
  }, [seconds]);
}
