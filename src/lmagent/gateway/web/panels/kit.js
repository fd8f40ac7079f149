// @ts-check
// Pieces that several panels show: nothing, a question before harm, one of several.
import { Icon } from "../icons.js";
import { html, useLayoutEffect, useRef, useState } from "../lib.js";
import { common } from "../words/conversation.js";

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
    <button class="button plain" onClick=${() => setAsking(false)}>${common.cancel}</button></span>`;
}

/**
 * One of several, as buttons side by side.
 * @param {{label: string, options: {value: string, label: string}[], value: string, choose: (value: string) => void}} props
 */
export function Choice({ label, options, value, choose }) {
  return html`<div class="segments" role="group" aria-label=${label}>${options.map((option) => html`<button key=${option.value}
    class="button" aria-pressed=${option.value === value} onClick=${() => choose(option.value)}>${option.label}</button>`)}</div>`;
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
