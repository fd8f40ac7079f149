// @ts-check
// Keys for the whole page. They are single letters, so they can be switched off, and do nothing where one writes.
import { drawn, signal } from "../lib.js";
import { unloaded } from "../parts.js";
import { go, route, sessionHref } from "../router.js";
import { drawer, login, store, stored } from "../session/state.js";

const KEY = "lmagent.keys";

/** Whether single letters do something. */
export const lettersOn = signal(stored(KEY, "on") !== "off");

/** @param {boolean} on */
export function setLetters(on) {
  lettersOn.value = on;
  store(KEY, on ? "" : "off");
}

/** Whether a key goes to where one writes or chooses; a dialog that was just closed may still have the focus. @param {Event} event */
export function writes({ target }) {
  return Boolean(/** @type {Element | null} */ (target)?.closest?.("input, textarea, select, dialog[open], [contenteditable], [role=tree]"));
}

/** @param {string} selector */
function focus(selector) {
  /** @type {HTMLElement | null} */ (document.querySelector(selector))?.focus();
}

/** @type {Record<string, () => void>} */
const LETTERS = {
  m: () => focus("#message"),
  n: () => {
    go("#/");
    drawn(() => focus("#message"));
  },
  s: () => {
    if (matchMedia("(max-width: 820px)").matches) drawer.value = "side";
    drawn(() => focus(".sessions input[type=search]"));
  },
  f: () => {
    const { session, panel, page } = route.peek();
    if (!page) go(sessionHref(session, panel === "files" ? "" : "files"));
  },
  "?": () => import("./settings.js").then(({ openHelp }) => openHelp(), unloaded),
};

addEventListener("keydown", (event) => {
  const act = Object.hasOwn(LETTERS, event.key) ? LETTERS[event.key] : undefined;
  if (!act || !lettersOn.peek() || login.peek() !== "in" || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (writes(event)) return; // a list of files goes to the name that is typed
  event.preventDefault();
  act();
});
