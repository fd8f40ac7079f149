// @ts-check
// A formula as MathML, made as nodes from the library's tree; its text where the library cannot read it.
import { h, html, useEffect, useState } from "../lib.js";
import { part } from "../parts.js";

/** @type {Promise<any> | undefined} */
let loading;

function library() {
  loading ??= part("./vendor/katex.js").then((module) => module.default).catch((error) => {
    loading = undefined; // the next formula asks again
    throw error;
  });
  return loading;
}

/** The library's own names for spaces, which have a width or are a character. @typedef {{character?: string, width?: number}} Space */
/** @typedef {{type?: string, text?: string, attributes?: Record<string, string>, children?: Node[]} & Space} Node */

/** What Chromium, Firefox and Safari draw (MathML Core); styles stay away, and so do links. */
const ATTRIBUTES = new Set(["accent", "accentunder", "columnalign", "columnspan", "depth", "display", "displaystyle", "fence", "form", "height",
  "largeop", "linethickness", "lspace", "mathbackground", "mathcolor", "mathsize", "mathvariant", "maxsize", "minsize", "movablelimits", "rowspan",
  "rspace", "scriptlevel", "separator", "stretchy", "symmetric", "voffset", "width", "xmlns"]);

/** @param {Node} node @returns {any} */
function drawn(node) {
  if (node.type === "annotation") return null;
  if (node.text !== undefined) return node.text;
  if (!node.type) return node.character ?? h("mspace", { width: `${node.width ?? 0}em` });
  const given = Object.entries(node.attributes ?? {}).filter(([name]) => ATTRIBUTES.has(name));
  return h(node.type, Object.fromEntries(given), (node.children ?? []).map(drawn));
}

/** @param {{text: string, raw: string, display: boolean}} props */
export function Formula({ text, raw, display }) {
  const [shown, setShown] = useState(/** @type {any} */ (null));
  useEffect(() => {
    let here = true;
    library().then((katex) => {
      const how = { output: "mathml", displayMode: display, throwOnError: true, trust: false, strict: "ignore", maxSize: 20, maxExpand: 500 };
      const tree = katex.__renderToDomTree(text, how);
      if (here) setShown(tree.children.map(drawn));
    }).catch(() => here && setShown(null)); // no formula after all: its text stays
    return () => {
      here = false;
    };
  }, [text, display]);
  return html`<span class=${display ? "formula display" : "formula"} title=${shown ? text : undefined}>${shown ?? raw}</span>`;
}
