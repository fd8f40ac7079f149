// @ts-check
// What happens in all sessions, by one stream for every panel that wants to know.
import { useEffect, useRef } from "../lib.js";
import { follow } from "../stream.js";

/** @typedef {import("../wire.js").Event & {session: string}} Happened */
/** @typedef {{event: (event: Happened) => void, begun: () => void}} Listener */

/** @type {Set<Listener>} */
const listeners = new Set();
/** @type {(() => void) | null} */
let stop = null;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let leaving;
const AWAY = 3000;

/**
 * Be told of every recorded event of every session, and (`begun`) when the stream begins, also anew: what happened
 * while it was away has to be asked for.
 * @param {(event: Happened) => void} event
 * @param {() => void} begun
 */
export function useFeed(event, begun) {
  const latest = useRef({ event, begun });
  latest.current = { event, begun };
  useEffect(() => {
    /** @type {Listener} */
    const listener = { event: (happened) => latest.current.event(happened), begun: () => latest.current.begun() };
    listeners.add(listener);
    begin();
    return () => {
      listeners.delete(listener);
      if (!listeners.size) end();
    };
  }, []);
}

function begin() {
  clearTimeout(leaving);
  if (document.hidden || !listeners.size) return;
  stop ??= follow({
    after: () => "",
    begun: () => listeners.forEach((one) => one.begun()),
    event: (happened) => listeners.forEach((one) => one.event(happened)),
    refused: end,
  });
}

function end() {
  stop?.();
  stop = null;
}

// Nobody looks: then the gateway need not look for what is new. Where it begins again, everything is asked for anew.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) leaving = setTimeout(end, AWAY);
  else begin();
});
