// @ts-check
// The libraries under one name, and `html`, which makes nodes of templates.
import htm from "./vendor/htm.js";
import { h } from "./vendor/preact.js";

export { Component, Fragment, h, render } from "./vendor/preact.js";
export {
  useCallback, useEffect, useErrorBoundary, useId, useLayoutEffect, useMemo, useRef, useState,
} from "./vendor/preact-hooks.js";
export { batch, computed, effect, signal, useComputed, useSignal } from "./vendor/signals.js";

/**
 * Do it when what was changed is drawn, and before the next key comes: a frame later, letters would be lost meanwhile.
 * @param {() => void} act
 */
export const drawn = (act) => queueMicrotask(act);

/** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
export const html = /** @type {any} */ (htm.bind(/** @type {any} */ (h)));
