// @ts-check
// A call: one line; its arguments, result and changes when it is opened.
import { get, sessionPath } from "./api.js";
import { Code } from "./code.js";
import { countDiff, Diff } from "./diff.js";
import { Icon } from "./icons.js";
import { html, useEffect, useState } from "./lib.js";
import { duration, figure } from "./parts.js";
import { current } from "./session.js";
import { complain } from "./state.js";

/** @typedef {import("./wire.js").ToolBlock} ToolBlock */

const STATUS = /** @type {const} */ ({
  pending: { icon: "dots", words: "about to run", kind: "quiet" },
  running: { icon: "dots", words: "running", kind: "busy" },
  ok: { icon: "check", words: "done", kind: "ok" },
  error: { icon: "cross", words: "failed", kind: "fault" },
  denied: { icon: "cross", words: "denied", kind: "fault" },
  interrupted: { icon: "stop", words: "stopped", kind: "warn" },
});

/** @param {{block: ToolBlock}} props */
export function ToolLine({ block }) {
  const [open, setOpen] = useState(false);
  const { icon, words, kind } = STATUS[block.status];
  const changes = block.diff ? countDiff(block.diff) : null;
  return html`<div class=${`tool ${kind}`}>
    <button class="tool-line" aria-expanded=${open} onClick=${() => setOpen(!open)}>
      <${Icon} name=${icon} /><span class="cut grow">${block.summary}</span>
      ${changes && html`<span class="counts small" aria-label=${`${changes.added} lines added, ${changes.removed} removed`}>
        <ins>+${changes.added}</ins> <del>−${changes.removed}</del></span>`}
      <span class="small quiet">${block.status === "ok" ? html`<span class="unseen">done</span>` : words}${
        block.duration >= 0.1 && ` ${duration(block.duration)}`}</span>
      <${Icon} name=${open ? "down" : "right"} />
    </button>
    ${block.status === "running" && html`<${Live} call=${block.call_id} />`}
    ${open && html`<${Details} block=${block} />`}
  </div>`;
}

/** What the running call prints. @param {{call: string}} props */
function Live({ call }) {
  const text = current.value?.outputs.value[call];
  return text ? html`<pre class="output live" tabindex="0" role="region" aria-label="Output so far">${text.split("\n").slice(-8).join("\n")}</pre>` : null;
}

/** @typedef {{arguments: unknown, content: string, artifact: string | null, size: number, diff: string}} Whole */

/** @param {{block: ToolBlock}} props */
function Details({ block }) {
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
    ${over && html`<h3 class="small quiet">Result</h3>
      <pre class="output" tabindex="0" role="region" aria-label="Result">${content || "(nothing)"}</pre>`}
    <div class="row">
      ${block.cut && !all && whole && html`<button class="button" onClick=${() => setAll(true)}>Show all of it</button>`}
      ${whole?.artifact && html`<a class="button" target="_blank" rel="noopener"
        href=${sessionPath(session, `/artifacts/${whole.artifact}`)}>Whole output, ${figure(whole.size)} bytes</a>`}
    </div>
  </div>`;
}

/** @param {{given: unknown}} props */
function Arguments({ given }) {
  const text = typeof given === "string" ? pretty(given) : JSON.stringify(given, null, 2);
  if (!text || text === "{}") return null;
  return html`<h3 class="small quiet">Arguments</h3><${Code} code=${text} language="json" />`;
}

/** Arguments as the model wrote them, laid out where they are JSON. @param {string} text */
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
