// @ts-check
// What fills a session's window, as `/context` shows it in the terminal, and where the conversation is shortened.
import { get, sessionPath } from "./api.js";
import { html, useEffect, useState } from "./lib.js";
import { figure } from "./parts.js";
import { busy } from "./status.js";
import { header as words } from "./words/conversation.js";

/** @typedef {{parts: {name: string, tokens: number}[], used: number, window: number, trigger: number, compactions: number}} Use */

const WIDE = 320;

/** @param {{session: import("./session.js").Session, close: () => void}} props */
export function ContextMap({ session, close }) {
  const [use, setUse] = useState(/** @type {Use | null} */ (null));
  const [problem, setProblem] = useState("");
  const { totals } = session.view.value;
  useEffect(() => {
    const stop = new AbortController();
    get(sessionPath(session.id, "/context"), stop.signal).then(setUse, (error) => stop.signal.aborted || setProblem(error.words));
    return () => stop.abort();
  }, [session, totals.context]);
  if (problem) return html`<p class="empty" role="alert">${problem}</p>`;
  if (!use) return null;
  const shorten = () => {
    session.command({ type: "compact" });
    close();
  };
  const share = (/** @type {number} */ tokens) => Math.round((tokens / use.window) * 100);
  return html`<div class="context"><h2>${words.contextTitle}</h2>
    <${Map} use=${use} />
    <p class="small">${words.used(figure(use.used), figure(use.window))}</p>
    <table class="small"><tbody>
      ${use.parts.map(({ name, tokens }) => html`<tr key=${name}><th scope="row"><span class=${`swatch part-${name}`}></span>${words.parts[name] ?? name}</th>
        <td>${figure(tokens)}</td><td class="quiet">${share(tokens)} %</td></tr>`)}
      <tr><th scope="row"><span class="swatch"></span>${words.free}</th><td>${figure(Math.max(0, use.window - use.used))}</td>
        <td class="quiet">${share(Math.max(0, use.window - use.used))} %</td></tr>
    </tbody></table>
    <p class="small quiet">${words.cut(figure(use.trigger), share(use.trigger))} ${use.compactions > 0 && words.cuts(use.compactions)}</p>
    <button class="button" disabled=${busy(session.view.value)} onClick=${shorten}>${words.shorten}</button></div>`;
}

/** The same as the table, as a bar; its line is the place of the next cut. @param {{use: Use}} props */
function Map({ use }) {
  let at = 0;
  const wide = (/** @type {number} */ tokens) => (tokens / use.window) * WIDE;
  return html`<svg class="map" viewBox=${`0 0 ${WIDE} 16`} aria-hidden="true" preserveAspectRatio="none">
    <rect class="rail" width=${WIDE} height="16" />
    ${use.parts.map(({ name, tokens }) => {
      const x = at;
      at += wide(tokens);
      return html`<rect key=${name} class=${`part-${name}`} x=${x} width=${wide(tokens)} height="16" />`;
    })}
    <line class="cut-line" x1=${wide(use.trigger)} x2=${wide(use.trigger)} y1="0" y2="16" /></svg>`;
}
