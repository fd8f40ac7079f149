// @ts-check
// The libraries under one name, and `html`, which makes nodes of templates.
// A template takes the value of a signal, not the signal: scripts/vendor_web.py leaves out what would draw one.
import { h, htm } from "./vendor/preact.js";

export {
  batch, computed, h, render, signal, useCallback, useEffect, useErrorBoundary, useId, useLayoutEffect, useMemo, useRef,
  useSignal, useState,
} from "./vendor/preact.js";

/**
 * Act when the change is drawn, and before the next key comes: a frame later, letters would be lost meanwhile.
 * @param {() => void} act
 */
export const drawn = (act) => queueMicrotask(act);

/** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
export const html = /** @type {any} */ (htm.bind(/** @type {any} */ (h)));
