// @ts-check
// Pieces that several panels share: nothing here, a question before harm, one of several; moments and states of sessions;
// the stream of all events; data from the gateway with its states.
import { get } from "../session/api.js";
import { focusOnce } from "../header.js";
import { Icon } from "../icons.js";
import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from "../lib.js";
import { onEscape, useEvery } from "../parts.js";
import { tried } from "../session/state.js";
import { follow } from "../session/stream.js";
import { visible } from "../session/visible.js";
import { common, data as words, sessions } from "../words/conversation.js";

/** Nothing is there: what to do about it. @param {{icon: import("../icons.js").IconName, title: string, children?: any}} props */
export function Nothing({ icon, title, children }) {
  return html`<div class="nothing"><${Icon} name=${icon} /><strong>${title}</strong><div class="quiet">${children}</div></div>`;
}

/**
 * A button with a picture, and whatever else a button takes.
 * @param {{icon: import("../icons.js").IconName, label: any, kind?: string, of?: string, [attribute: string]: any}} props `of` is what it is about
 */
export function Button({ icon, label, kind = "", of = "", ...rest }) {
  return html`<button class=${`button ${kind}`} aria-label=${of ? `${label}: ${of}` : undefined} ...${rest}><${Icon} name=${icon} />${label}</button>`;
}

/** A part of a page under its heading. @param {{title: string, kind?: string, children?: any}} props */
export function Section({ title, kind = "", children }) {
  return html`<section class=${`section ${kind}`} aria-label=${title}><h2>${title}</h2>${children}</section>`;
}

/** A table that scrolls in its place. @param {{label: string, children?: any}} props */
export function Table({ label, children }) {
  return html`<div class="table-wrap" tabindex="0" role="region" aria-label=${label}><table class="table">${children}</table></div>`;
}

/**
 * One line of text, and a button that takes it; it is emptied when it was taken.
 * @param {{label: string, yes: string, save: (text: string) => unknown, value?: string, most?: number, close?: () => void}} props `save` returns
 *   whether it was taken; `close` is called then; `most` is its longest length
 */
export function Line({ label, yes, save, value = "", most = 1000, close }) {
  const submit = async (/** @type {any} */ event) => {
    event.preventDefault();
    const field = event.target.elements.text;
    const text = field.value.trim();
    if (text && (await save(text))) close ? close() : (field.value = "");
  };
  return html`<form class="row" onSubmit=${submit}><input class="field grow" name="text" aria-label=${label} placeholder=${label} defaultValue=${value}
      maxlength=${most} autocomplete="off" ref=${close && focusOnce} />
    <button class="button">${yes}</button>
    ${close && html`<button type="button" class="button plain" onClick=${close}>${common.cancel}</button>`}</form>`;
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
  return html`<span class="sure asking" role="group" aria-label=${label} ref=${place} onKeyDown=${onEscape(() => setAsking(false))}>
    <span>${question}</span>
    <button class="button fault" onClick=${() => (setAsking(false), act())}>${yes}</button>
    <button class="button plain" onClick=${() => setAsking(false)}>${common.cancel}</button></span>`;
}

/**
 * One of several, as buttons side by side.
 * @param {{label: string, options: readonly {value: string, label: string}[], value: string, choose: (value: string) => void}} props
 */
export function Choice({ label, options, value, choose }) {
  return html`<div class="segments" role="group" aria-label=${label}>${options.map((option) => html`<button key=${option.value}
    class="button" aria-pressed=${option.value === value} onClick=${() => choose(option.value)}>${option.label}</button>`)}</div>`;
}

/** A button that opens and closes a part of a card. @param {{label: string, of: string, open: boolean, flip: () => void}} props */
export function Toggle({ label, of, open, flip }) {
  return html`<${Button} icon=${open ? "down" : "right"} label=${label} of=${of} aria-expanded=${open} onClick=${flip} />`;
}

/** Text of a file or program, with its hidden characters shown. @param {{label: string, text: string}} props */
export function Output({ label, text }) {
  return html`<pre class="code-block code" tabindex="0" role="region" aria-label=${label}>${visible(text)}</pre>`;
}

/**
 * Whether an action runs, and a function that runs one, shows why it failed, and calls `after`.
 * @param {() => void} [after] @returns {[boolean, (action: () => unknown) => Promise<void>]}
 */
export function useAct(after) {
  const [busy, setBusy] = useState(false);
  return [busy, async (action) => {
    setBusy(true);
    await tried(action);
    setBusy(false);
    after?.();
  }];
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
  useEvery(seconds * 1000, () => setCount((count) => count + 1));
}

const texts = sessions.states;

/** @typedef {import("../icons.js").IconName} IconName */
/** @typedef {{icon: IconName, kind: "idle" | "busy" | "waiting" | "done" | "failed", words: string}} Standing */

/** Icon and kind of each status, and of what a session waits for. @type {Record<string, string>} */
const LOOKS = {
  approval: "shield waiting",
  plan: "tasks waiting",
  question: "info waiting",
  time: "clock idle",
  running: "pulse busy",
  interrupted: "stop idle",
  waiting: "clock idle",
  idle: "list idle",
  done: "check done",
  ok: "check done",
  error: "warning failed",
  limit: "warning failed",
  blocked: "warning failed",
  partial: "warning idle",
};

/** @param {{status: string, waiting_for?: string}} row @returns {Standing} */
export function standing({ status, waiting_for = "" }) {
  const key = LOOKS[waiting_for] ? waiting_for : status;
  const [icon, kind] = /** @type {[any, any]} */ ((LOOKS[key] ?? "info idle").split(" "));
  return { icon, kind, words: texts[/** @type {keyof typeof texts} */ (key)] ?? key };
}

/** @typedef {import("../session/wire.js").Event & {session: string}} Happened */
/** @typedef {{event: (event: Happened) => void, begun: () => void}} Listener */

/** @type {Set<Listener>} */
const listeners = new Set();
/** @type {(() => void) | null} */
let stop = null;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let leaving;
const AWAY = 3000;

/**
 * Receive every recorded event of every session, and (`begun`) a call when the stream begins, also anew: events
 * that it missed have to be asked for.
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

// A hidden page follows nothing, so that the gateway need not look for news. When it is seen again, all is asked for anew.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) leaving = setTimeout(end, AWAY);
  else begin();
});

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
 * The answer of a path, asked for when the path changes and when `reload` is called. Requests never take more than a
 * fifth of the time, however long the gateway needs and however often `reload` is called.
 * @template T
 * @param {string} path empty for nothing yet
 * @param {{keep?: boolean, every?: number}} [options] `keep` shows the answer of the path before until this one has answered;
 *   `every` asks again after so many milliseconds while the page is seen
 * @returns {Loaded<T>}
 */
export function useData(path, { keep = false, every = 0 } = {}) {
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
  useEvery(every, reload);
  const fresh = state.path === path;
  return { data: fresh || keep ? state.data : null, error: fresh ? state.error : null, reload };
}

/**
 * A line while data is missing, or beside data that could not be renewed.
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
    <p><${Button} icon="refresh" label=${words.again} onClick=${again} /></p></div></div>`;
}

/** @param {{label: string, value: string, change: (value: string) => void, placeholder?: string}} props */
export function Search({ label, value, change, placeholder = label }) {
  return html`<input class="field search" type="search" aria-label=${label} placeholder=${placeholder} value=${value} spellcheck=${false}
    autocomplete="off" onInput=${(/** @type {any} */ event) => change(event.target.value)} />`;
}

/** Whether texts together have all words that are searched for. @param {string} search @param {(string | undefined)[]} texts */
export function fits(search, texts) {
  const told = texts.join(" ").toLowerCase();
  return search.toLowerCase().split(/\s+/).every((word) => told.includes(word));
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
