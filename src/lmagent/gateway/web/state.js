// @ts-check
// What the whole page knows, beyond the session that is shown (session.js).
import { signal } from "./lib.js";

/** @typedef {import("./wire.js").Me} Me */

/** Who is asking, and of which workspace; null before it is known. */
export const me = signal(/** @type {Me | null} */ (null));

/** Whether this browser is logged in: "in", "out", or "unknown" before the gateway has answered. */
export const login = signal(/** @type {"unknown" | "in" | "out"} */ ("unknown"));

/** Why the gateway cannot be reached; empty while it can. */
export const lost = signal("");

/** Which drawer of a narrow window is open: "" for none, "side" or "beside". */
export const drawer = signal(/** @type {"" | "side" | "beside"} */ (""));

/** What a screen reader is told when it changes; never for every token. */
export const announced = signal("");

/** @typedef {{id: number, level: "info" | "error", text: string, fix: string}} Toast */
/** Short messages about what a person has just done. */
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
 * Show what went wrong with something that a person did.
 * @param {unknown} error
 */
export function complain(error) {
  const { message, fix } = /** @type {{message?: string, fix?: string}} */ (error ?? {});
  toast(message || String(error), "error", fix ?? "");
}
