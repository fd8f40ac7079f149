// @ts-check
// The blocks of a conversation, one component a kind.
import { sessionPath } from "./api.js";
import { Code } from "./code.js";
import { Icon } from "./icons.js";
import { html, useState } from "./lib.js";
import { Markdown } from "./markdown.js";
import { beforePlan, splitPlan } from "./planwords.js";
import { current } from "./session.js";
import { ToolLine } from "./toolblock.js";

/** @typedef {import("./wire.js").Block} Block */

/** Nodes of blocks that have not changed: the same node again is work that nobody does twice. @type {WeakMap<Block, any>} */
const made = new WeakMap();

/** @param {Block} block @param {number | string} key its place in the conversation, or what else it is known by */
export function blockNode(block, key) {
  const known = made.get(block);
  if (known && known.key === key) return known;
  const node = html`<${Shown} key=${key} block=${block} />`;
  made.set(block, node);
  return node;
}

/** What the model is saying now, under the keys that it will have when it is said. @param {string} thinking @param {string} draft @param {number} key */
export function draftNodes(thinking, draft, key) {
  const nodes = [];
  if (thinking.trim()) nodes.push(html`<${Shown} key=${key++} block=${{ kind: "thinking", text: thinking }} growing />`);
  if (draft.trim()) nodes.push(html`<${Shown} key=${key} block=${{ kind: "text", text: draft }} growing />`);
  return nodes;
}

/** @param {{block: Block, growing?: boolean}} props */
function Shown({ block, growing = false }) {
  switch (block.kind) {
    case "user":
      return html`<${Said} block=${block} />`;
    case "text":
      return html`<${Answer} text=${block.text} growing=${growing} />`;
    case "thinking":
      return html`<${Thought} text=${block.text} growing=${growing} />`;
    case "tool":
      return html`<div class="block"><${ToolLine} block=${block} /></div>`;
    case "notice":
      return html`<div class="block"><${NoticeLine} level=${block.level} text=${block.text} /></div>`;
  }
}

/** @param {{text: string, growing: boolean}} props */
function Answer({ text, growing }) {
  const [open, setOpen] = useState(false);
  const planning = growing && current.value?.view.value.work === "plan";
  const { words, writing } = planning ? beforePlan(text) : { words: text, writing: false };
  const { words: shown, plan } = growing ? { words, plan: "" } : splitPlan(text);
  return html`<article class="block said" aria-label="Agent"><${Markdown} text=${shown} growing=${growing} />
    ${writing && html`<p class="quiet">Writing a plan …</p>`}
    ${plan && html`<button class="tool-line" aria-expanded=${open} onClick=${() => setOpen(!open)}>
      <span class="quiet grow">The plan, as the model wrote it</span><${Icon} name=${open ? "down" : "right"} /></button>`}
    ${plan && open && html`<${Code} code=${plan} language="json" />`}
  </article>`;
}

/** @param {{block: import("./wire.js").UserBlock}} props */
function Said({ block }) {
  const session = current.value;
  return html`<article class="block user" aria-label="You">
    <div class="bubble">${block.text}
      ${block.images > 0 && html`<div class="pictures">${Array.from({ length: block.images }, (_, number) => html`
        <img loading="lazy" alt=${`Picture ${number + 1} of your message`}
          src=${sessionPath(session?.id ?? "", `/images/${encodeURIComponent(block.id)}/${number}`)} />`)}</div>`}
    </div>
  </article>`;
}

/** @param {{text: string, growing: boolean}} props */
function Thought({ text, growing }) {
  const [open, setOpen] = useState(false);
  const last = text.trimEnd().split("\n").at(-1) ?? "";
  return html`<div class="block thought">
    <button class="tool-line" aria-expanded=${open} onClick=${() => setOpen(!open)}>
      <span class="quiet">${growing ? "Thinking" : "Thought"}</span>
      ${!open && html`<span class="cut grow quiet small" aria-hidden="true">${growing ? last.slice(-160) : text.trim().slice(0, 160)}</span>`}
      ${open && html`<span class="grow"></span>`}<${Icon} name=${open ? "down" : "right"} />
    </button>
    ${open && html`<div class="thought-text">${text.trim()}</div>`}
  </div>`;
}

/** @param {{level: import("./wire.js").Level, text: string}} props */
export function NoticeLine({ level, text }) {
  return html`<div class=${`notice ${level}`}>
    <${Icon} name=${level === "info" ? "info" : "warning"} /><div>${level !== "info" && html`<span class="unseen">${level}: </span>`}${text}</div></div>`;
}
