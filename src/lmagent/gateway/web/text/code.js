// @ts-check
// Code, coloured by the highlighter's token tree; the highlighter is fetched when the first code comes into view.
import { html, useEffect, useRef, useState } from "../lib.js";
import { part } from "../parts.js";
import { isTangled } from "./reading.js";

/** @typedef {import("../vendor/highlight.js").HighlightNode} HighlightNode */

const TOO_LONG = 50_000;
/**
 * Characters that are coloured at a time, in one task, because nothing stops the highlighter: on the worst of texts it
 * takes the square of their length, 4 s for 50 kB. `PIECE` is enough where a line ends in it outside of every colour,
 * else it is up to `MOST`.
 */
const PIECE = 800;
const MOST = 2500;
/** Milliseconds: a piece that took longer is not made larger, and after `ENOUGH` a text is not coloured further. */
const SLOW = 60;
const ENOUGH = 1500;
/** Characters that are laid out together: the whole of a long text would take longer than a frame, each time. */
const PART = 2500;
/** Deeper colours are not drawn: code can be nested as deep as it is long, and drawing it would go as deep. */
const DEEP = 40;

/** @type {Promise<typeof import("../vendor/highlight.js").default> | undefined} */
let loading;

function highlighter() {
  loading ??= part("./vendor/highlight.js").then((module) => module.default).catch((error) => {
    loading = undefined; // the next code asks again
    throw error;
  });
  return loading;
}

/** @type {WeakMap<Element, () => void>} */
const watched = new WeakMap();
const observer = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      observer.unobserve(entry.target);
      watched.get(entry.target)?.();
    }
  },
  { rootMargin: "200px" },
);

/** The class of a token; several names of the highlighter share a colour. */
const CLASSES = /** @type {Record<string, string>} */ ({
  keyword: "keyword", built_in: "title", type: "title", literal: "number", number: "number", string: "string",
  regexp: "string", symbol: "number", title: "title", function: "title", class: "title", comment: "quiet",
  doctag: "quiet", meta: "quiet", attr: "title", attribute: "title", property: "title", variable: "number",
  tag: "keyword", name: "keyword", "selector-tag": "keyword", "selector-class": "title", "selector-id": "title",
  addition: "added", deletion: "removed", section: "title", bullet: "keyword", quote: "quiet", link: "string",
});

/** @param {HighlightNode} node @param {number} depth @returns {any} */
function colored(node, depth) {
  if (typeof node === "string") return node;
  if (depth > DEEP) return textOf(node);
  const kind = CLASSES[(node.scope ?? "").split(".")[0] ?? ""];
  const inside = node.children.map((child) => colored(child, depth + 1));
  return kind ? html`<span class=${`code-${kind}`}>${inside}</span>` : inside;
}

/** @param {HighlightNode} node */
function textOf(node) {
  let text = "";
  const left = [node];
  for (let next = left.pop(); next !== undefined; next = left.pop()) {
    if (typeof next === "string") text += next;
    else for (let at = next.children.length - 1; at >= 0; at--) left.push(/** @type {HighlightNode} */ (next.children[at]));
  }
  return text;
}

/**
 * Where to begin the next piece: after the last line that ends outside of every colour, so that a comment or a text of
 * several lines is in one piece with its beginning; 0 where no line ends so.
 * @param {HighlightNode[]} nodes
 */
function lineEnd(nodes) {
  let at = 0;
  let end = 0;
  for (const node of nodes) {
    const text = textOf(node);
    const line = typeof node === "string" ? text.lastIndexOf("\n") + 1 : text.endsWith("\n") ? text.length : 0;
    if (line) end = at + line;
    at += text.length;
  }
  return end;
}

/** Whether a letter of two units (UTF-16) would be cut there. @param {string} text @param {number} place */
const isHalf = (text, place) => /[\ud800-\udbff]/.test(text[place - 1] ?? "") && place < text.length;

/** The beginning of some nodes. @param {HighlightNode[]} nodes @param {number} length characters @returns {HighlightNode[]} */
function upTo(nodes, length) {
  /** @type {HighlightNode[]} */
  const kept = [];
  for (const node of nodes) {
    const text = textOf(node);
    if (length <= 0) break;
    kept.push(typeof node === "string" ? node.slice(0, length) : node);
    length -= text.length;
  }
  return kept;
}

/**
 * Colour code piece by piece, with time for the page between them; it ends early where that takes too long.
 * @param {any} hljs @param {string} code @param {string} language
 * @param {(piece: Piece) => boolean} take given the next piece; false to stop
 */
async function paint(hljs, code, language, take) {
  hljs.highlight("", { language }); // the highlighter builds a language when it is first used
  let size = PIECE;
  let spent = 0;
  for (let at = 0; at < code.length && spent < ENOUGH; ) {
    await rest();
    const text = code.slice(at, at + size - (isHalf(code, at + size) ? 1 : 0));
    const began = performance.now();
    /** @type {HighlightNode[]} */
    const nodes = hljs.highlight(text, { language, ignoreIllegals: true })._emitter.rootNode.children;
    const took = performance.now() - began;
    spent += took;
    const last = at + text.length === code.length;
    const length = (!last && lineEnd(nodes)) || (last || size === MOST || took > SLOW ? text.length : 0);
    size = length ? PIECE : Math.min(MOST, 2 * size);
    if (!length) continue;
    at += length;
    await rest();
    if (!take({ inside: html`<span key=${at}>${upTo(nodes, length).map((node) => colored(node, 0))}</span>`, end: at })) return;
  }
}

/** Let the page do its other work. */
const rest = () => new Promise((resolve) => setTimeout(resolve));

/** A coloured piece, and where it ends in the code. @typedef {{inside: any, end: number}} Piece */

/**
 * The code as parts that end with a line. Each is laid out by itself: when it changes, and when it is about to be seen.
 * @param {string} code @param {Piece[]} pieces its beginning, coloured
 */
function parts(code, pieces) {
  /** @type {{key: number, start: number, end: number, inside: any[]}[]} */
  const made = [];
  let at = 0;
  const add = (/** @type {Piece} */ { inside, end }, key = at) => {
    const last = made.at(-1);
    if (last && code[at - 1] !== "\n") {
      last.inside.push(inside);
      last.end = end;
    } else made.push({ key, start: at, end, inside: [inside] });
    at = end;
  };
  pieces.forEach((piece) => add(piece));
  while (at < code.length) {
    const part = Math.floor(at / PART) + 1; // its end does not change with its beginning, nor with what comes later
    const end = code.indexOf("\n", part * PART - 1) + 1 || code.length;
    add({ inside: code.slice(at, end), end }, -part);
  }
  if (made.length < 2) return made[0]?.inside;
  return made.map(({ key, start, end, inside }) => {
    const lines = code.slice(start, end - 1).split("\n").length;
    const tall = (/** @type {HTMLElement | null} */ part) => part?.style.setProperty("contain-intrinsic-block-size", `auto ${lines}lh`);
    return html`<span class="part" key=${key} ref=${tall}>${inside}</span>`;
  });
}

/**
 * @param {{code: string, language?: string, open?: boolean}} props `open` while it is still being written: then it is
 *   not coloured
 */
export function Code({ code, language = "", open = false }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const [tree, setTree] = useState({ code: "", pieces: /** @type {Piece[]} */ ([]) });
  useEffect(() => {
    const element = place.current;
    if (open || !language || code.length > TOO_LONG || isTangled(code) || !element) return;
    let here = true;
    watched.set(element, async () => {
      const hljs = await highlighter().catch(() => null);
      if (!here || !hljs?.getLanguage(language)) return;
      /** @type {Piece[]} */
      const pieces = [];
      await paint(hljs, code, language, (piece) => {
        pieces.push(piece);
        if (here) setTree({ code, pieces: [...pieces] });
        return here;
      }).catch(() => {}); // the highlighter gives up: the rest stays as it is
    });
    observer.observe(element);
    return () => {
      here = false;
      observer.unobserve(element);
    };
  }, [code, language, open]);
  const label = language ? `Code, ${language}` : "Code";
  return html`<pre class="code" tabindex="0" role="group" aria-label=${label} ref=${place}><code>${
    parts(code, tree.code === code ? tree.pieces : [])}</code></pre>`;
}
