// @ts-check
// Light or dark: as the system says, until a person says otherwise.
import { signal } from "./lib.js";

/** @typedef {"system" | "light" | "dark"} Theme */

const KEY = "lmagent.theme";

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
    return localStorage.getItem(key) ?? fallback;
  } catch {
    return fallback;
  }
}

/** Keep a value in this browser; an empty one takes it away. @param {string} key @param {string} value */
export function store(key, value) {
  try {
    if (value) localStorage.setItem(key, value);
    else localStorage.removeItem(key);
  } catch {
    // A browser that keeps nothing, or whose place is full: the page works without.
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
