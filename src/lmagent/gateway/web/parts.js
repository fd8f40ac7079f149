// @ts-check
// Small pieces that several screens use, and parts of the page that are fetched when they are first needed.
import { Icon } from "./icons.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";
import { drawer, toast } from "./session/state.js";
import { header, page as texts } from "./words/conversation.js";

/** A button that is a picture, and whatever else a button takes. @param {{icon: import("./icons.js").IconName, label: string, kind?: string, [attribute: string]: any}} props */
export function Square({ icon, label, kind = "", ...rest }) {
  return html`<button class=${`button plain square ${kind}`} aria-label=${label} title=${label} ...${rest}><${Icon} name=${icon} /></button>`;
}

/** The button that opens the drawer of a narrow window. */
export function DrawerButton() {
  return html`<${Square} icon="menu" label=${header.drawer} kind="only-narrow" onClick=${() => (drawer.value = "side")} />`;
}

/**
 * A button that opens what belongs to it; closed by Escape, by a click elsewhere, and by `close`.
 * @param {{label: string, face: any, kind?: string, children: (close: () => void) => any}} props `face` is the content of the
 *   button, `label` its accessible name and that of the popup
 */
export function Popup({ label, face, kind = "button plain", children }) {
  const [open, setOpen] = useState(false);
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const close = () => {
    setOpen(false);
    place.current?.querySelector("button")?.focus();
  };
  useLayoutEffect(() => {
    if (!open) return;
    const outside = (/** @type {Event} */ event) => {
      if (!place.current?.contains(/** @type {Node} */ (event.target))) setOpen(false);
    };
    const pressed = onEscape(close); // wherever the focus is: the button pressed last may be gone
    addEventListener("pointerdown", outside);
    addEventListener("keydown", pressed, true);
    return () => {
      removeEventListener("pointerdown", outside);
      removeEventListener("keydown", pressed, true);
    };
  }, [open]);
  return html`<div class="menu" ref=${place}>
    <button class=${kind} aria-label=${label} title=${label} aria-expanded=${open} onClick=${() => setOpen(!open)}>${face}</button>
    ${open && html`<div class="popup" role="group" aria-label=${label}>${children(close)}</div>`}
  </div>`;
}

/** Copy a text, and say so. @param {string} text @param {string} [told] */
export async function copy(text, told = texts.copied) {
  try {
    await navigator.clipboard.writeText(text);
    toast(told);
  } catch {
    toast(texts.noCopy, "error", texts.noCopyFix);
  }
}

/** Act when Escape is pressed, which then does nothing else. @param {() => void} act */
export const onEscape = (act) => (/** @type {KeyboardEvent} */ event) => {
  if (event.key !== "Escape") return;
  event.preventDefault();
  act();
};

/**
 * As tall as its text, up to the height that the styles allow.
 * @param {{current: HTMLTextAreaElement | null}} field @param {string} text @param {number} [more] pixels of its border
 */
export function useGrowing(field, text, more = 0) {
  useLayoutEffect(() => {
    const element = field.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${element.scrollHeight + more}px`;
  }, [text]);
}

/** A number with its thousands apart. @param {number} number */
export function figure(number) {
  return Math.round(number).toLocaleString("en-US");
}

/** Seconds in words: `1 min 5 s`. @param {number} seconds */
export function duration(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** A moment on this device's clock; with the date, where that is another day. @param {number} moment Unix seconds */
export function clock(moment) {
  const there = new Date(moment * 1000);
  const time = there.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return there.toDateString() === new Date().toDateString() ? time : `${there.toLocaleDateString()} ${time}`;
}

/** Whether the window is as a query of media says. @param {string} query */
export function useWindowIs(query) {
  const [is, setIs] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const asked = matchMedia(query);
    const changed = () => setIs(asked.matches);
    asked.addEventListener("change", changed);
    return () => asked.removeEventListener("change", changed);
  }, []);
  return is;
}

/** Act every so many milliseconds while the page is seen; 0 never. @param {number} pause @param {() => void} act */
export function useEvery(pause, act) {
  useEffect(() => {
    if (!pause) return;
    const timer = setInterval(() => document.hidden || act(), pause);
    return () => clearInterval(timer);
  }, [pause]);
}

/** Seconds since `from` (milliseconds), counted while it is shown. @param {number} from */
export function useElapsed(from) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return Math.max(0, (now - from) / 1000);
}

/** Say that a part could not be loaded. */
export const unloaded = () => toast(texts.unloaded, "error", texts.unloadedFix);

let again = 0;

/**
 * A module of the page. A browser may remember that a fetch failed and never repeat it (Chromium 150 does), so what did
 * not come is asked for once more by an address that it does not know.
 * @param {string} path relative to this folder
 * @returns {Promise<any>}
 */
export const part = (path) => import(path).catch(() => import(`${path}?again=${++again}`));

/**
 * A component that is fetched when it is first shown.
 * @param {string} path of its module, relative to this folder @param {string} name
 * @param {(props: any) => any} [meanwhile] shown until the module has arrived
 * @returns {(props: any) => any}
 */
export function late(path, name, meanwhile) {
  return function Late(props) {
    const [Part, setPart] = useState(/** @type {any} */ (null));
    useEffect(() => {
      let here = true;
      part(path).then((module) => here && setPart(() => module[name]), unloaded);
      return () => {
        here = false;
      };
    }, []);
    return Part ? html`<${Part} ...${props} />` : meanwhile?.(props);
  };
}
