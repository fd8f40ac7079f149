// @ts-check
// Markdown as nodes, straight from the lexer's tokens: HTML in it stays text, and nothing is loaded from elsewhere.
// A text that grows is read block by block: finished blocks are never read again.
import { Code } from "./code.js";
import { Icon } from "../icons.js";
import { html, useRef } from "../lib.js";
import { copy, late } from "../parts.js";
import { read, settled, UNSETTLED } from "./reading.js";
import { page as words } from "../words/conversation.js";

/** @typedef {any} Token */

const SAFE = /^(https?:|mailto:)/i;
const DEEP = 40;

const Formula = late("./text/formula.js", "Formula", ({ raw }) => raw);
const Diagram = late("./text/diagram.js", "Diagram");

/** A text that may grow, and its blocks as nodes. */
class Document {
  constructor() {
    this.reset();
  }

  reset() {
    /** @type {string} */
    this.text = "";
    this.growing = false;
    /** Where the part begins that may still change. */
    this.tail = 0;
    /** The settled part of a paragraph that grows there. */
    this.known = UNSETTLED;
    /** @type {any[]} nodes of finished blocks */
    this.done = [];
    /** @type {any[]} nodes of the rest */
    this.open = [];
  }

  /** @param {string} text @param {boolean} growing more is to come */
  update(text, growing) {
    if (text === this.text && growing === this.growing) return;
    if (!text.startsWith(this.text)) this.reset();
    this.text = text;
    this.growing = growing;
    const tokens = read(text.slice(this.tail), this.known);
    const blocks = tokens.filter((token) => token.type !== "space");
    let last = growing ? tokens.lastIndexOf(/** @type {Token} */ (blocks.at(-1))) : tokens.length;
    if (last < 0) last = 0;
    for (const token of tokens.slice(0, last)) {
      this.tail += token.raw.length;
      const node = block(token, 0, false);
      if (node !== null) this.done.push(node);
    }
    const writing = growing ? tokens[last] : undefined;
    this.known = writing?.type === "paragraph" ? settled(writing.tokens) : UNSETTLED;
    this.open = tokens.slice(last).map((token) => block(token, 0, growing)).filter((node) => node !== null);
  }
}

/** @param {{text: string, growing?: boolean}} props */
export function Markdown({ text, growing = false }) {
  const kept = useRef(/** @type {Document | null} */ (null));
  kept.current ??= new Document();
  // The lexer counts in \n alone, so that lengths of its pieces are places in the text.
  kept.current.update(text.replace(/\r\n?/g, "\n"), growing);
  return html`<div class="markdown">${[...kept.current.done, ...kept.current.open]}</div>`;
}

/** @param {Token[] | undefined} tokens @param {number} depth */
function blocks(tokens, depth) {
  return (tokens ?? []).map((token) => block(token, depth + 1, false));
}

/**
 * @param {Token} token
 * @param {number} depth
 * @param {boolean} open it is still being written
 * @returns {any}
 */
function block(token, depth, open) {
  if (depth > DEEP) return token.raw;
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading":
      // The page's own headings are above these.
      return html`<${`h${Math.min(6, token.depth + 2)}`} class=${`level-${token.depth}`}>${inline(token.tokens, depth)}</>`;
    case "code":
      return html`<${CodeBlock} code=${token.text} language=${(token.lang ?? "").split(/[\s{]/)[0]} open=${open} />`;
    case "maths":
      return html`<${Formula} text=${token.text} raw=${token.raw} display=${token.display} />`;
    case "blockquote":
      return html`<blockquote>${blocks(token.tokens, depth)}</blockquote>`;
    case "list":
      return list(token, depth);
    case "table":
      return table(token, depth);
    case "hr":
      return html`<hr />`;
    case "html":
      return html`<p class="raw">${token.text}</p>`;
    case "paragraph":
      return html`<p>${inline(token.tokens, depth)}</p>`;
    case "text":
      return token.tokens ? inline(token.tokens, depth) : unescaped(token.text);
    default:
      return token.raw;
  }
}

/** @param {Token} token @param {number} depth */
function list(token, depth) {
  const items = token.items.map((/** @type {Token} */ item) => html`<li class=${item.task ? "task" : ""}>${
    item.task && html`<span class="tick" role="img" aria-label=${item.checked ? "done" : "open"}>${item.checked ? "☑" : "☐"}</span>`}${
    item.tokens.filter((/** @type {Token} */ inner) => inner.type !== "checkbox").map((/** @type {Token} */ inner) => block(inner, depth + 1, false))}</li>`);
  const start = token.ordered && token.start !== 1 ? Number(token.start) : undefined;
  return token.ordered ? html`<ol start=${start}>${items}</ol>` : html`<ul>${items}</ul>`;
}

/** @param {Token} token @param {number} depth */
function table(token, depth) {
  const cell = (/** @type {Token} */ item, /** @type {string} */ tag) => {
    return html`<${tag} class=${item.align ?? ""}>${inline(item.tokens, depth)}</>`;
  };
  return html`<div class="table-wrap" tabindex="0" role="group" aria-label=${words.table}><table class="table">
    <thead><tr>${token.header.map((/** @type {Token} */ item) => cell(item, "th"))}</tr></thead>
    <tbody>${token.rows.map((/** @type {Token[]} */ row) => html`<tr>${row.map((item) => cell(item, "td"))}</tr>`)}</tbody>
  </table></div>`;
}

/** Nodes of tokens: that of a settled one is the same again, and not looked at. @type {WeakMap<Token, any>} */
const made = new WeakMap();

/** @param {Token[] | undefined} tokens @param {number} depth @returns {any[]} */
function inline(tokens, depth) {
  return (tokens ?? []).map((token) => {
    const node = made.get(token) ?? span(token, depth + 1);
    made.set(token, node);
    return node;
  });
}

/** @param {Token} token @param {number} depth @returns {any} */
function span(token, depth) {
  if (depth > DEEP) return token.raw;
  switch (token.type) {
    case "maths":
      return html`<${Formula} text=${token.text} raw=${token.raw} display=${token.display} />`;
    case "strong":
      return html`<strong>${inline(token.tokens, depth)}</strong>`;
    case "em":
      return html`<em>${inline(token.tokens, depth)}</em>`;
    case "del":
      return html`<del>${inline(token.tokens, depth)}</del>`;
    case "codespan":
      return html`<code>${token.text}</code>`;
    case "br":
      return html`<br />`;
    case "link":
      return link(token.href, inline(token.tokens, depth));
    case "image":
      return link(token.href, `image: ${[token.text, short(token.href)].filter(Boolean).join(", ")}`);
    case "escape":
      return token.text;
    case "text":
      return token.tokens ? inline(token.tokens, depth) : unescaped(token.text);
    default:
      return token.raw;
  }
}

/** @param {string} href @param {any} inside */
function link(href, inside) {
  // Control characters and spaces in front are skipped by browsers, and would hide a scheme from us.
  if (!SAFE.test(href) || !URL.canParse(href)) return html`<span class="dead-link" title=${href}>${inside}</span>`;
  return html`<a href=${href} target="_blank" rel="noopener noreferrer" title=${new URL(href).href}>${inside}</a>`;
}

/** Host and the end of the path. @param {string} href */
function short(href) {
  if (!SAFE.test(href) || !URL.canParse(href)) return words.notOnTheWeb;
  const { host, pathname } = new URL(href);
  const last = pathname.split("/").at(-1) ?? "";
  return `${host}/…${last ? `/${last.slice(-40)}` : ""}`;
}

const ENTITIES = new Map(Object.entries({ amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: " ", "#39": "'" }));

/** Text with the entities that writers of Markdown use. @param {string} text */
function unescaped(text) {
  return text.includes("&") ? text.replace(/&(#39|[a-z]+);/g, (whole, name) => ENTITIES.get(name) ?? whole) : text;
}

/** @param {{code: string, language: string, open: boolean}} props */
function CodeBlock({ code, language, open }) {
  return html`<div class="code-block">
    <div class="code-bar"><span class="grow">${language}</span>
      <button class="button plain" onClick=${() => copy(code)} aria-label=${words.copyCode}><${Icon} name="file" />${words.copy}</button></div>
    ${language === "mermaid" && !open ? html`<${Diagram} key=${code} code=${code} />` : html`<${Code} code=${code} language=${language} open=${open} />`}
  </div>`;
}
