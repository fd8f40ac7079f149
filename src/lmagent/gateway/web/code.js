// @ts-check
// Code, coloured by the highlighter's token tree; the highlighter is fetched when the first code comes into view.
import { html, useEffect, useRef, useState } from "./lib.js";
import { isTangled } from "./reading.js";

/** @typedef {import("./vendor/highlight.js").HighlightNode} HighlightNode */

const TOO_LONG = 50_000;
/** Deeper colours are not drawn: code can be nested as deep as it is long, and drawing it would go as deep. */
const DEEP = 40;

/** @type {Promise<typeof import("./vendor/highlight.js").default> | undefined} */
let loading;

function highlighter() {
  loading ??= import("./vendor/highlight.js").then((module) => module.default);
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

/** Code as nodes; null where the highlighter gives up. @param {any} hljs @param {string} code @param {string} language */
function nodesOf(hljs, code, language) {
  try {
    const { _emitter } = hljs.highlight(code, { language, ignoreIllegals: true });
    return _emitter.rootNode.children.map((/** @type {HighlightNode} */ node) => colored(node, 0));
  } catch {
    return null;
  }
}

/**
 * @param {{code: string, language?: string, open?: boolean}} props `open` while it is still being written: then it is
 *   not coloured
 */
export function Code({ code, language = "", open = false }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const [tree, setTree] = useState(/** @type {{code: string, nodes: any} | null} */ (null));
  useEffect(() => {
    const element = place.current;
    if (open || !language || code.length > TOO_LONG || isTangled(code) || !element) return;
    let here = true;
    watched.set(element, async () => {
      const hljs = await highlighter().catch(() => null);
      if (!here || !hljs?.getLanguage(language)) return;
      const nodes = nodesOf(hljs, code, language);
      if (nodes) setTree({ code, nodes });
    });
    observer.observe(element);
    return () => {
      here = false;
      observer.unobserve(element);
    };
  }, [code, language, open]);
  const label = language ? `Code, ${language}` : "Code";
  return html`<pre class="code" tabindex="0" role="region" aria-label=${label} ref=${place}><code>${
    tree?.code === code ? tree.nodes : code}</code></pre>`;
}
