// @ts-check
// Light or dark: as the system says, until a person says otherwise.
import { signal } from "./lib.js";

/** @typedef {"system" | "light" | "dark"} Theme */

const KEY = "lmagent.theme";

/** What a browser that keeps nothing, or whose place is full, keeps for as long as the page is there. @type {Map<string, string>} */
const memory = new Map();

/** What was chosen. */
export const theme = signal(/** @type {Theme} */ (stored(KEY, "system")));

/**
 * A value kept in this browser.
 * @param {string} key
 * @param {string} fallback where there is none, or the browser keeps nothing
 * @returns {any}
 */
export function stored(key, fallback) {
  try {
    return memory.get(key) ?? localStorage.getItem(key) ?? fallback;
  } catch {
    return memory.get(key) ?? fallback;
  }
}

/** Keep a value in this browser; an empty one takes it away. @param {string} key @param {string} value */
export function store(key, value) {
  try {
    memory.delete(key);
    if (value) localStorage.setItem(key, value);
    else localStorage.removeItem(key);
  } catch {
    memory.set(key, value);
  }
}

/** @param {Theme} chosen */
export function setTheme(chosen) {
  theme.value = chosen;
  store(KEY, chosen === "system" ? "" : chosen);
  applyTheme();
}

/** Tell the styles. */
export function applyTheme() {
  document.documentElement.dataset.theme = theme.value;
}
