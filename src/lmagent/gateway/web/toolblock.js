// @ts-check
// A call: one line; its arguments, result and changes when it is opened.
import { countDiff } from "./difflines.js";
import { Icon } from "./icons.js";
import { late, part } from "./late.js";
import { html, useState } from "./lib.js";
import { duration } from "./parts.js";
import { current } from "./session.js";

/** @typedef {import("./wire.js").ToolBlock} ToolBlock */

const STATUS = /** @type {const} */ ({
  pending: { icon: "dots", words: "about to run", kind: "quiet" },
  running: { icon: "dots", words: "running", kind: "busy" },
  ok: { icon: "check", words: "done", kind: "ok" },
  error: { icon: "cross", words: "failed", kind: "fault" },
  denied: { icon: "cross", words: "denied", kind: "fault" },
  interrupted: { icon: "stop", words: "stopped", kind: "warn" },
});

const Details = late(() => part("./tooldetails.js").then((module) => module.Details));

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
  const text = current.value?.outputs.value.get(call);
  return text ? html`<pre class="output live" tabindex="0" role="region" aria-label="Output so far">${text.split("\n").slice(-8).join("\n")}</pre>` : null;
}
