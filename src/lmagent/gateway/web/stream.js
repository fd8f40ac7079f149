// @ts-check
// A stream of events that comes back by itself: after a fault, a restart of the gateway, a laptop's sleep.
import { get } from "./api.js";
import { lost } from "./state.js";

const PAUSES = [300, 1000, 2000, 4000, 8000];
const AWAY = 60_000;

export const AWAY_WORDS = "The connection to the gateway is lost; trying again. Nothing that was sent is lost.";

/**
 * @typedef {Object} StreamOptions
 * @property {() => string} url where to read on from; asked at every connect
 * @property {string} probe a request that tells why a connect fails
 * @property {(answer: any) => void} [probed] what the probe was answered
 * @property {() => void} [begun] connected, also again: what was said live and not recorded will be said once more
 * @property {(event: any) => void} event one event
 * @property {(error: import("./api.js").ApiError) => void} refused the probe was answered with an error: no more tries
 * @property {() => boolean} [idle] whether nothing is going on: a page that nobody looks at then gives its connection
 *   back after a minute, since browsers keep only six to one address
 */

/**
 * Follow it until the returned function is called.
 * @param {StreamOptions} options
 * @returns {() => void}
 */
export function follow(options) {
  /** @type {EventSource | null} */
  let source = null;
  let failures = 0;
  let closed = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;

  const drop = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };

  const connect = () => {
    drop();
    source = new EventSource(options.url());
    source.onopen = () => {
      failures = 0;
      lost.value = "";
      options.begun?.();
    };
    source.onmessage = ({ data }) => options.event(JSON.parse(data));
    source.onerror = failed;
  };

  const failed = async () => {
    drop();
    if (closed) return;
    const pause = /** @type {number} */ (PAUSES[Math.min(failures++, PAUSES.length - 1)]);
    try {
      const answer = await get(options.probe);
      if (!closed) options.probed?.(answer);
    } catch (caught) {
      const error = /** @type {import("./api.js").ApiError} */ (caught);
      if (closed) return;
      if (error.status >= 400 && error.status < 500 && error.status !== 429) {
        options.refused(error);
        return;
      }
      if (failures > 1) lost.value = AWAY_WORDS;
    }
    if (!closed) timer = setTimeout(connect, pause);
  };

  const looked = () => {
    if (closed) return;
    if (!document.hidden) {
      clearTimeout(timer);
      if (!source) connect();
      return;
    }
    timer = setTimeout(function rest() {
      if (options.idle?.()) drop();
      else timer = setTimeout(rest, AWAY);
    }, AWAY);
  };

  const online = () => !source && !closed && connect();
  document.addEventListener("visibilitychange", looked);
  addEventListener("online", online);
  connect();
  return () => {
    closed = true;
    drop();
    document.removeEventListener("visibilitychange", looked);
    removeEventListener("online", online);
  };
}
