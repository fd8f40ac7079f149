// @ts-check
// State of the whole page beyond the shown session (session.js), and the values kept in this browser.
import { signal } from "../lib.js";

/** @typedef {import("./wire.js").Me} Me */

/** Who is asking, and of which workspace; null before it is known. */
export const me = signal(/** @type {Me | null} */ (null));

/** The name on the page: that of the agent that it serves. */
export const brand = () => me.value?.title || "lmagent";

/** Whether this browser is logged in: "in", "out", or "unknown" before the gateway has answered. */
export const login = signal(/** @type {"unknown" | "in" | "out"} */ ("unknown"));

/** Why the gateway cannot be reached; empty while it can. */
export const lost = signal("");

/** Which drawer of a narrow window is open: "" for none, "side" or "beside". */
export const drawer = signal(/** @type {"" | "side" | "beside"} */ (""));

/** Text that a screen reader speaks when it changes; never for every token. */
export const announced = signal("");

/** @typedef {{id: number, level: "info" | "error", text: string, fix: string}} Toast */
/** Short messages about the user's last actions. */
export const toasts = signal(/** @type {Toast[]} */ ([]));

let counter = 0;

/**
 * Say something for some seconds; an error stays until it is dismissed.
 * @param {string} text
 * @param {"info" | "error"} [level]
 * @param {string} [fix] what to do about it
 */
export function toast(text, level = "info", fix = "") {
  const id = ++counter;
  toasts.value = [...toasts.value.filter((item) => item.text !== text).slice(-3), { id, level, text, fix }];
  if (level === "info") setTimeout(() => dismiss(id), 6000);
}

/** @param {number} id */
export function dismiss(id) {
  toasts.value = toasts.value.filter((item) => item.id !== id);
}

/**
 * Show why an action of the user failed.
 * @param {unknown} error
 */
export function complain(error) {
  const { message, fix } = /** @type {{message?: string, fix?: string}} */ (error ?? {});
  toast(message || String(error), "error", fix ?? "");
}

/** Act, and show why that failed, if it did. Returns whether it succeeded. @param {() => unknown} act @returns {Promise<boolean>} */
export async function tried(act) {
  try {
    await act();
    return true;
  } catch (error) {
    complain(error);
    return false;
  }
}

/** @typedef {"system" | "light" | "dark"} Theme */

const KEY = "lmagent.theme";

/** Values that the browser does not keep, because it keeps nothing or is full; lost with the page. @type {Map<string, string>} */
const memory = new Map();

/** The chosen colours. */
export const theme = signal(/** @type {Theme} */ (stored(KEY, "system")));

/**
 * A value kept in this browser.
 * @param {string} key
 * @param {string} fallback where none is kept
 * @returns {any}
 */
export function stored(key, fallback) {
  try {
    return memory.get(key) ?? localStorage.getItem(key) ?? fallback;
  } catch {
    return memory.get(key) ?? fallback;
  }
}

/** A value that is kept as JSON; null for none, and for what this page has not written. @param {string} key @returns {any} */
export function storedValue(key) {
  try {
    return JSON.parse(stored(key, "null"));
  } catch {
    return null;
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
