// @ts-check
// The blocks of a conversation, one component a kind.
import { rawOf, sessionPath } from "../session/api.js";
import { Code } from "../text/code.js";
import { countDiff } from "../text/difflines.js";
import { ATTACHED } from "../session/fold.js";
import { Icon } from "../icons.js";
import { html, useState } from "../lib.js";
import { Markdown } from "../text/markdown.js";
import { duration, late } from "../parts.js";
import { current } from "../session/session.js";
import { visible } from "../session/visible.js";
import { messages as words } from "../words/conversation.js";

/** @typedef {import("../session/wire.js").Block} Block */

/** Nodes of blocks that have not changed: the same node again costs no work. @type {WeakMap<Block, any>} */
const made = new WeakMap();

const MessageActions = late("./conversation/actions.js", "MessageActions");
const AnswerActions = late("./conversation/actions.js", "AnswerActions");
const EditMessage = late("./conversation/actions.js", "EditMessage");
const BranchLine = late("./conversation/actions.js", "BranchLine");

/**
 * @param {Block} block
 * @param {number | string} key its place in the conversation, or what else it is known by
 * @param {boolean} [opens] whether a turn begins with it
 */
export function blockNode(block, key, opens = false) {
  const known = made.get(block);
  if (known && known.key === key) return known;
  const node = html`<${Shown} key=${key} block=${block} opens=${opens} />`;
  made.set(block, node);
  return node;
}

/** The answers of turns that have ended: with the last text of each one something can be done. @param {Block[]} blocks @param {number} running */
export function answersOf(blocks, running) {
  /** @type {Set<Block>} */
  const answers = new Set();
  let turn = running;
  for (const block of blocks.toReversed()) {
    if (block.kind !== "text" || block.turn === turn) continue;
    turn = block.turn;
    answers.add(block);
  }
  return answers;
}

/** @type {WeakMap<Block, any>} */
const acts = new WeakMap();

/** What can be done with an answer. @param {Block} block @param {number} key */
export function answerActions(block, key) {
  const node = acts.get(block) ?? html`<div class="block acts" key=${`acts ${key}`}><${AnswerActions} block=${block} /></div>`;
  acts.set(block, node);
  return node;
}

/** The text that the model is writing, under the keys that it will have when it is complete. @param {string} thinking @param {string} draft @param {number} key */
export function draftNodes(thinking, draft, key) {
  const nodes = [];
  if (thinking.trim()) nodes.push(html`<${Shown} key=${key++} block=${{ kind: "thinking", text: thinking }} growing />`);
  if (draft.trim()) nodes.push(html`<${Shown} key=${key} block=${{ kind: "text", text: draft }} growing />`);
  return nodes;
}

/** @param {{block: Block, growing?: boolean, opens?: boolean}} props */
function Shown({ block, growing = false, opens = false }) {
  switch (block.kind) {
    case "user":
      return html`<${Said} block=${block} opens=${opens} />`;
    case "text":
      return html`<${Answer} text=${block.text} growing=${growing} />`;
    case "thinking":
      return html`<${Thought} text=${block.text} growing=${growing} />`;
    case "tool":
      return html`<div class="block"><${ToolLine} block=${block} /></div>`;
    case "branch":
      return html`<div class="block"><${BranchLine} parent=${block.parent} /></div>`;
    case "notice":
      return html`<div class="block"><${NoticeLine} level=${block.level} text=${block.text} /></div>`;
  }
}

/** @param {{text: string, growing: boolean}} props */
function Answer({ text, growing }) {
  const [open, setOpen] = useState(false);
  const planning = growing && current.value?.view.value.work === "plan";
  const { words: before, writing } = planning ? beforePlan(text) : { words: text, writing: false };
  const { words: shown, plan } = growing ? { words: before, plan: "" } : splitPlan(text);
  return html`<article class="block said" aria-label=${words.agent}><${Markdown} text=${shown} growing=${growing} />
    ${writing && html`<p class="quiet">${words.writingPlan}</p>`}
    ${plan && html`<button class="tool-line" aria-expanded=${open} onClick=${() => setOpen(!open)}>
      <span class="quiet grow">${words.planAsWritten}</span><${Icon} name=${open ? "down" : "right"} /></button>`}
    ${plan && open && html`<${Code} code=${plan} language="json" />`}
  </article>`;
}

/** @param {{block: import("../session/wire.js").UserBlock, opens: boolean}} props `opens`: its turn begins with it */
function Said({ block, opens }) {
  const [editing, setEditing] = useState(false);
  const session = current.value;
  const { text, files } = splitAttached(block.text);
  return html`<article class="block user" aria-label=${words.you}>
    ${editing ? html`<${EditMessage} block=${block} close=${() => setEditing(false)} />` : html`<div class="bubble">${text}
      ${block.images > 0 && html`<div class="pictures">${Array.from({ length: block.images }, (_, number) => html`
        <img loading="lazy" alt=${words.imageOf(number + 1)}
          src=${sessionPath(session?.id ?? "", `/images/${encodeURIComponent(block.id)}/${number}`)} />`)}</div>`}
      ${files.map((file, number) => html`<${Attachment} key=${number} file=${file} />`)}
    </div>
    ${block.turn > 0 && html`<div class="acts"><${MessageActions} block=${block} opens=${opens} edit=${() => setEditing(true)} /></div>`}`}
  </article>`;
}

/** A file whose text went along with a message. @param {{file: Attached}} props */
function Attachment({ file }) {
  const [open, setOpen] = useState(false);
  return html`<div class="attached">
    <button class="tool-line" aria-expanded=${open} aria-label=${words.attached(file.name)} onClick=${() => setOpen(!open)}>
      <${Icon} name="file" /><span class="cut grow">${file.name}</span><${Icon} name=${open ? "down" : "right"} /></button>
    ${open && html`<pre class="output" tabindex="0" role="region" aria-label=${file.name}>${file.text}</pre>`}
  </div>`;
}

/** @param {{text: string, growing: boolean}} props */
function Thought({ text, growing }) {
  const [open, setOpen] = useState(false);
  const last = text.trimEnd().split("\n").at(-1) ?? "";
  return html`<div class="block thought">
    <button class="tool-line" aria-expanded=${open} onClick=${() => setOpen(!open)}>
      <span class="quiet">${growing ? words.thinking : words.thought}</span>
      ${!open && html`<span class="cut grow quiet small" aria-hidden="true">${growing ? last.slice(-160) : text.trim().slice(0, 160)}</span>`}
      ${open && html`<span class="grow"></span>`}<${Icon} name=${open ? "down" : "right"} />
    </button>
    ${open && html`<div class="thought-text">${text.trim()}</div>`}
  </div>`;
}

/** @param {{level: import("../session/wire.js").Level, text: string}} props */
function NoticeLine({ level, text }) {
  return html`<div class=${`notice ${level}`}>
    <${Icon} name=${level === "info" ? "info" : "warning"} /><div><span class="unseen">${words.level[level]}</span>${text}</div></div>`;
}

/** @typedef {{name: string, text: string}} Attached `name` with the number of its lines */

/**
 * The words of a message, the rest of it as it was sent, and the files in that.
 * @param {string} whole
 * @returns {{text: string, rest: string, files: Attached[]}}
 */
export function splitAttached(whole) {
  const [text = "", ...pieces] = whole.split(ATTACHED);
  const files = pieces.map((piece) => {
    const [head = "", ...lines] = piece.split("\n");
    return { name: head.replace(/\]$/, ""), text: lines.join("\n") };
  });
  return { text, rest: whole.slice(text.length), files };
}

const BEGINS = /[[{`]/;
const FENCES = /^```\w*\s*|\s*```\s*$/g;

/**
 * The words in front of a plan, and the plan as the model wrote it; empty if the text has no plan.
 * @param {string} text
 * @returns {{words: string, plan: string}}
 */
function splitPlan(text) {
  const at = text.includes('"steps"') ? text.search(BEGINS) : -1;
  if (at < 0) return { words: text, plan: "" };
  const body = text.slice(at).replace(FENCES, "");
  try {
    const plan = JSON.parse(body);
    if (Array.isArray(plan?.steps)) return { words: text.slice(0, at), plan: JSON.stringify(plan, null, 2) };
  } catch {
    // No plan alone: shown as it is.
  }
  return { words: text, plan: "" };
}

/**
 * The words in front of what may become a plan, while it is written.
 * @param {string} text
 * @returns {{words: string, writing: boolean}}
 */
function beforePlan(text) {
  const at = text.search(BEGINS);
  return at < 0 ? { words: text, writing: false } : { words: text.slice(0, at), writing: true };
}

/** @typedef {import("../session/wire.js").ToolBlock} ToolBlock */

const STATUS = /** @type {const} */ ({
  pending: { icon: "dots", kind: "quiet" },
  running: { icon: "dots", kind: "busy" },
  ok: { icon: "check", kind: "ok" },
  error: { icon: "close", kind: "fault" },
  denied: { icon: "close", kind: "fault" },
  interrupted: { icon: "stop", kind: "warn" },
});

const Details = late("./conversation/tooldetails.js", "Details");

/** @param {{block: ToolBlock}} props */
function ToolLine({ block }) {
  const [open, setOpen] = useState(false);
  const { icon, kind } = STATUS[block.status];
  const status = words.statuses[block.status];
  const changes = block.diff ? countDiff(block.diff) : null;
  return html`<div class=${`tool ${kind}`}>
    <button class="tool-line" aria-expanded=${open} onClick=${() => setOpen(!open)}>
      <${Icon} name=${icon} /><span class="cut grow">${block.summary}</span>
      ${changes && html`<span class="counts small" aria-label=${words.linesChanged(changes.added, changes.removed)}>
        <ins>+${changes.added}</ins> <del>−${changes.removed}</del></span>`}
      <span class="small quiet">${block.status === "ok" ? html`<span class="unseen">${status}</span>` : status}${
        block.duration >= 0.1 && ` ${duration(block.duration)}`}</span>
      <${Icon} name=${open ? "down" : "right"} />
    </button>
    ${block.page && html`<a class="fetched" href=${block.page.url} target="_blank" rel="noopener noreferrer">
      ${visible(block.page.title)}<span class="small quiet cut">${visible(block.page.url)}</span></a>`}
    ${block.status === "running" && html`<${Live} call=${block.call_id} />`}
    ${block.picture && html`<img loading="lazy" alt=${block.summary} src=${rawOf(block.picture)} />`}
    ${open && html`<${Details} block=${block} />`}
  </div>`;
}

/** The output of the running call. @param {{call: string}} props */
function Live({ call }) {
  const text = current.value?.outputs.value.get(call);
  return text ? html`<pre class="output live" tabindex="0" role="region" aria-label=${words.outputSoFar}>${text.split("\n").slice(-8).join("\n")}</pre>` : null;
}
