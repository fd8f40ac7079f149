// @ts-check
// Data from the gateway with its states: asked for, there, old, refused; and words to look for in it.
import { get } from "../api.js";
import { Icon } from "../icons.js";
import { html, useCallback, useEffect, useRef, useState } from "../lib.js";
import { data as words } from "../words/conversation.js";

/**
 * @template T
 * @typedef {Object} Loaded
 * @property {T | null} data what came last; kept while it is asked for anew, and when that fails
 * @property {Error | null} error why the last request failed
 * @property {() => void} reload ask again, soon: several calls become one request
 */

const SOON = 150;
const SHARE = 4;

/**
 * What a path answers, asked for when the path changes and when `reload` is called. Requests never take more than a
 * fifth of the time, however long the gateway needs and however often `reload` is called.
 * @template T
 * @param {string} path empty for nothing yet
 * @param {{keep?: boolean}} [options] `keep` shows what the path before answered until this one has
 * @returns {Loaded<T>}
 */
export function useData(path, { keep = false } = {}) {
  const [state, setState] = useState(/** @type {{path: string, data: T | null, error: Error | null}} */ ({ path: "", data: null, error: null }));
  const wanted = useRef({ path: "", again: false, running: false, rest: 0 });
  const ask = useCallback(async () => {
    const mine = wanted.current;
    if (mine.running || !mine.path) return;
    const asked = mine.path;
    mine.running = true;
    mine.again = false;
    const began = performance.now();
    try {
      const data = await get(asked);
      if (asked === mine.path) setState({ path: asked, data, error: null });
    } catch (error) {
      if (asked === mine.path) setState((old) => ({ path: asked, data: keep || old.path === asked ? old.data : null, error: /** @type {Error} */ (error) }));
    }
    mine.running = false;
    mine.rest = SHARE * (performance.now() - began);
    if (asked !== mine.path) ask();
    else if (mine.again) setTimeout(ask, Math.max(SOON, mine.rest));
  }, []);
  const reload = useCallback(() => {
    const mine = wanted.current;
    if (mine.again) return;
    mine.again = true;
    if (!mine.running) setTimeout(ask, Math.max(SOON, mine.rest));
  }, []);
  useEffect(() => {
    wanted.current.path = path;
    ask();
    return () => {
      wanted.current.path = "";
    };
  }, [path]);
  const fresh = state.path === path;
  return { data: fresh || keep ? state.data : null, error: fresh ? state.error : null, reload };
}

/**
 * What is shown while there is no data, or beside data that could not be renewed.
 * @param {{given: Loaded<any>, what: string}} props `what` is asked for, in words: "the files"
 */
export function Pending({ given, what }) {
  if (given.error) return html`<${Failed} error=${given.error} what=${what} again=${given.reload} />`;
  return given.data ? null : html`<p class="empty" role="status">${words.loading(what)}</p>`;
}

/** @param {{error: Error, what: string, again: () => void}} props */
export function Failed({ error, what, again }) {
  const { message, fix } = /** @type {{message: string, fix?: string}} */ (error);
  return html`<div class="notice error" role="alert"><${Icon} name="warning" /><div class="grow">${words.failed(what, message)}
    ${fix && html`<div class="small quiet">${fix}</div>`}
    <p><button class="button" onClick=${again}><${Icon} name="refresh" />${words.again}</button></p></div></div>`;
}

/** @param {{label: string, value: string, change: (value: string) => void, placeholder?: string}} props */
export function Search({ label, value, change, placeholder = label }) {
  return html`<input class="field search" type="search" aria-label=${label} placeholder=${placeholder} value=${value} spellcheck=${false}
    autocomplete="off" onInput=${(/** @type {any} */ event) => change(event.target.value)} />`;
}

/** The value, once it has not changed for so many milliseconds. @template T @param {T} value @param {number} pause @returns {T} */
export function useSettled(value, pause) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), pause);
    return () => clearTimeout(timer);
  }, [value, pause]);
  return settled;
}
