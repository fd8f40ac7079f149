// @ts-check
// The details of a call: arguments, changes, result; fetched when the first of them is opened.
import { get, sessionPath } from "../session/api.js";
import { Code } from "../text/code.js";
import { Diff } from "../text/diff.js";
import { html, useEffect, useState } from "../lib.js";
import { figure } from "../parts.js";
import { current } from "../session/session.js";
import { complain } from "../session/state.js";
import { messages as words } from "../words/conversation.js";

/** @typedef {import("../session/wire.js").ToolBlock} ToolBlock */
/** @typedef {{arguments: unknown, content: string, artifact: string | null, size: number, diff: string}} Whole */

/** @param {{block: ToolBlock}} props */
export function Details({ block }) {
  const [whole, setWhole] = useState(/** @type {Whole | null} */ (null));
  const [all, setAll] = useState(false);
  const session = current.value?.id ?? "";
  const over = block.status !== "pending" && block.status !== "running";
  useEffect(() => {
    const stop = new AbortController();
    get(sessionPath(session, `/calls/${encodeURIComponent(block.call_id)}`), stop.signal).then(setWhole, (error) => {
      if (!stop.signal.aborted) complain(error);
    });
    return () => stop.abort();
  }, [session, block.call_id, over]);
  const content = all && whole ? whole.content : block.content;
  return html`<div class="tool-details">
    ${whole && html`<${Arguments} given=${whole.arguments} />`}
    ${block.diff && html`<${Diff} text=${block.diff} />`}
    ${over && html`<h3 class="small quiet">${words.result}</h3>
      <pre class="output" tabindex="0" role="region" aria-label=${words.result}>${content || words.noOutput}</pre>`}
    <div class="row">
      ${block.cut && !all && whole && html`<button class="button" onClick=${() => setAll(true)}>${words.showAll}</button>`}
      ${whole?.artifact && html`<a class="button" target="_blank" rel="noopener"
        href=${sessionPath(session, `/artifacts/${whole.artifact}`)}>${words.wholeOutput(figure(whole.size))}</a>`}
    </div>
  </div>`;
}

/** @param {{given: unknown}} props */
function Arguments({ given }) {
  const text = typeof given === "string" ? pretty(given) : JSON.stringify(given, null, 2);
  if (!text || text === "{}") return null;
  return html`<h3 class="small quiet">${words.arguments}</h3><${Code} code=${text} language="json" />`;
}

/** Arguments as the model wrote them, laid out where they are JSON. @param {string} text */
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
