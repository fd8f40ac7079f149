// @ts-check
// What the panels share: data from the gateway with its states, questions before harm, moments in words.
import { get } from "../api.js";
import { Icon } from "../icons.js";
import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from "../lib.js";

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
  return given.data ? null : html`<p class="empty" role="status">Loading ${what} …</p>`;
}

/** @param {{error: Error, what: string, again: () => void}} props */
export function Failed({ error, what, again }) {
  const { message, fix } = /** @type {{message: string, fix?: string}} */ (error);
  return html`<div class="notice error" role="alert"><${Icon} name="warning" /><div class="grow">Cannot show ${what}: ${message}
    ${fix && html`<div class="small quiet">${fix}</div>`}
    <p><button class="button" onClick=${again}><${Icon} name="refresh" />Try again</button></p></div></div>`;
}

/** Nothing is there: what to do about it. @param {{icon: import("../icons.js").IconName, title: string, children?: any}} props */
export function Nothing({ icon, title, children }) {
  return html`<div class="nothing"><${Icon} name=${icon} /><strong>${title}</strong><div class="quiet">${children}</div></div>`;
}

/**
 * A button that asks first, in its own place.
 * @param {{label: string, question: any, yes: string, act: () => unknown, icon?: import("../icons.js").IconName,
 *   kind?: string, disabled?: boolean, title?: string}} props
 */
export function Sure({ label, question, yes, act, icon, kind = "button", disabled = false, title }) {
  const [asking, setAsking] = useState(false);
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const moved = useRef(false);
  useLayoutEffect(() => {
    if (!asking && !moved.current) return;
    moved.current = true;
    place.current?.querySelector("button")?.focus();
  }, [asking]);
  if (!asking || disabled) {
    return html`<span class="sure" ref=${place}><button class=${kind} disabled=${disabled} title=${title} onClick=${() => setAsking(true)}>
      ${icon && html`<${Icon} name=${icon} />`}${label}</button></span>`;
  }
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    setAsking(false);
  };
  return html`<span class="sure asking" role="group" aria-label=${label} ref=${place} onKeyDown=${pressed}>
    <span>${question}</span>
    <button class="button fault" onClick=${() => (setAsking(false), act())}>${yes}</button>
    <button class="button plain" onClick=${() => setAsking(false)}>Keep it as it is</button></span>`;
}

/** @param {{label: string, value: string, change: (value: string) => void, placeholder?: string}} props */
export function Search({ label, value, change, placeholder = label }) {
  return html`<input class="field search" type="search" aria-label=${label} placeholder=${placeholder} value=${value} spellcheck=${false}
    autocomplete="off" onInput=${(/** @type {any} */ event) => change(event.target.value)} />`;
}

/**
 * One of several, as buttons side by side.
 * @param {{label: string, options: {value: string, label: string}[], value: string, choose: (value: string) => void}} props
 */
export function Choice({ label, options, value, choose }) {
  return html`<div class="segments" role="group" aria-label=${label}>${options.map((option) => html`<button key=${option.value}
    class="button" aria-pressed=${option.value === value} onClick=${() => choose(option.value)}>${option.label}</button>`)}</div>`;
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

const STEPS = /** @type {const} */ ([[60, 1, "s"], [3600, 60, "min"], [86_400, 3600, "h"], [7 * 86_400, 86_400, "d"]]);

/** How long ago, or in how long: "5 min ago", "in 2 h", or the day. @param {number} moment Unix seconds @param {number} [now] */
export function ago(moment, now = Date.now() / 1000) {
  const away = Math.abs(now - moment);
  if (away < 10) return "now";
  for (const [below, unit, name] of STEPS) {
    if (away >= below) continue;
    const words = `${Math.floor(away / unit)} ${name}`;
    return moment > now ? `in ${words}` : `${words} ago`;
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

/** A size as people say it. @param {number} bytes */
export function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let at = -1;
  do {
    bytes /= 1000;
    at++;
  } while (bytes >= 1000 && at < units.length - 1);
  return `${bytes < 10 ? bytes.toFixed(1) : Math.round(bytes)} ${units[at]}`;
}
