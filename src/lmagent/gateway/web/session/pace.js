// @ts-check
// How fast the model reads and writes, and what makes a call slow: the twin of core/view.py.

/** @typedef {import("./wire.js").Pace} Pace */

const ENOUGH = 200;
const NEWS = 0.5;
const LOST = 2000;

/** Nothing is known. @type {Pace} */
export const NO_PACE = Object.freeze({
  read_per_s: 0, write_per_s: 0, prompt: 0, fresh: 0, reread: 0, reread_total: 0, reports_cache: false,
});

/** A call has been sent. @param {Pace} pace @param {number} tokens @returns {Pace} */
export function started(pace, tokens) {
  return { ...pace, fresh: Math.max(0, tokens - pace.prompt) };
}

/** A call has ended. @param {Pace} pace @param {import("./wire.js").Event} step @returns {Pace} */
export function finished(pace, step) {
  const { prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0 } = step.usage;
  const reports = pace.reports_cache || cached_tokens > 0;
  const read = reports ? prompt_tokens - cached_tokens : Math.max(0, prompt_tokens - pace.prompt);
  let speed = pace.read_per_s;
  if (read >= ENOUGH && step.first_token_s >= 0.05) {
    const sample = read / step.first_token_s;
    speed = speed ? sample * NEWS + speed * (1 - NEWS) : sample;
  }
  const writing = step.total_s - step.first_token_s;
  const again = reports ? Math.max(0, Math.min(pace.prompt, prompt_tokens) - cached_tokens) : 0;
  return {
    read_per_s: speed,
    write_per_s: writing > 0.05 ? completion_tokens / writing : pace.write_per_s,
    prompt: prompt_tokens,
    fresh: 0,
    reread: again,
    reread_total: pace.reread_total + again,
    reports_cache: reports,
  };
}

/** The conversation was cut. @param {Pace} pace @returns {Pace} */
export function compacted(pace) {
  return { ...pace, prompt: 0 };
}

/** Seconds that the running call's prompt should take to be read; 0 where that is not known. @param {Pace} pace */
export function readingSeconds(pace) {
  return pace.read_per_s ? pace.fresh / pace.read_per_s : 0;
}

/** Tokens that the last call read again because the server had lost its cache, where that was noticeable. @param {Pace} pace */
export function readAgain(pace) {
  return pace.reread >= LOST ? pace.reread : 0;
}
