// @ts-check
// A call: one line; its arguments, result and changes when it is opened.
import { countDiff } from "./difflines.js";
import { Icon } from "./icons.js";
import { late, part } from "./late.js";
import { html, useState } from "./lib.js";
import { duration } from "./parts.js";
import { current } from "./session.js";
import { messages } from "./words/conversation.js";

/** @typedef {import("./wire.js").ToolBlock} ToolBlock */

const STATUS = /** @type {const} */ ({
  pending: { icon: "dots", kind: "quiet" },
  running: { icon: "dots", kind: "busy" },
  ok: { icon: "check", kind: "ok" },
  error: { icon: "cross", kind: "fault" },
  denied: { icon: "cross", kind: "fault" },
  interrupted: { icon: "stop", kind: "warn" },
});

const Details = late(() => part("./tooldetails.js").then((module) => module.Details));

/** @param {{block: ToolBlock}} props */
export function ToolLine({ block }) {
  const [open, setOpen] = useState(false);
  const { icon, kind } = STATUS[block.status];
  const words = messages.statuses[block.status];
  const changes = block.diff ? countDiff(block.diff) : null;
  return html`<div class=${`tool ${kind}`}>
    <button class="tool-line" aria-expanded=${open} onClick=${() => setOpen(!open)}>
      <${Icon} name=${icon} /><span class="cut grow">${block.summary}</span>
      ${changes && html`<span class="counts small" aria-label=${messages.linesChanged(changes.added, changes.removed)}>
        <ins>+${changes.added}</ins> <del>−${changes.removed}</del></span>`}
      <span class="small quiet">${block.status === "ok" ? html`<span class="unseen">${words}</span>` : words}${
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
  return text ? html`<pre class="output live" tabindex="0" role="region" aria-label=${messages.outputSoFar}>${text.split("\n").slice(-8).join("\n")}</pre>` : null;
}
