// @ts-check
// A file as what it means: Markdown laid out, a table of CSV, an HTML page in a sandbox.
import { html } from "../lib.js";
import { Markdown } from "../markdown.js";
import { visible } from "../visible.js";
import { files as words } from "../words/files.js";

const ROWS = 1000;
const COLUMNS = 100;

/** What a file can be shown as besides its text; empty for nothing. @param {string} path */
export function previewOf(path) {
  const ending = /\.([^./]+)$/.exec(path.toLowerCase())?.[1] ?? "";
  const kinds = { md: "markdown", markdown: "markdown", csv: "table", tsv: "table", html: "page", htm: "page" };
  return kinds[/** @type {keyof typeof kinds} */ (ending)] ?? "";
}

/** @param {{path: string, text: string}} props */
export function Preview({ path, text }) {
  const kind = previewOf(path);
  if (kind === "markdown") return html`<div class="card page-of"><${Markdown} text=${text} /></div>`;
  if (kind === "table") return html`<${Table} text=${text} separator=${separatorOf(path, text)} />`;
  return html`<iframe class="page-of" title=${words.pageOf(path)} sandbox="" src=${`/api/files/page?path=${encodeURIComponent(path)}`}></iframe>
    <p class="small quiet">${words.pageNote}</p>`;
}

/** @param {string} path @param {string} text */
function separatorOf(path, text) {
  if (path.toLowerCase().endsWith(".tsv")) return "\t";
  const head = text.split("\n", 1)[0] ?? "";
  return [";", "\t"].find((sign) => head.split(sign).length > head.split(",").length) ?? ",";
}

/**
 * The rows of a table as RFC 4180 has them, up to so many.
 * @param {string} text @param {string} separator @param {number} most
 */
export function rowsOf(text, separator, most) {
  /** @type {string[][]} */
  const rows = [];
  /** @type {string[]} */
  let row = [];
  let cell = "";
  let quoted = false;
  for (let at = 0; at < text.length && rows.length < most; at++) {
    const sign = text[at];
    if (quoted) {
      if (sign !== '"') cell += sign;
      else if (text[at + 1] === '"') cell += text[++at];
      else quoted = false;
    } else if (sign === '"' && !cell) quoted = true;
    else if (sign === separator) cell = (row.push(cell), "");
    else if (sign === "\n") {
      row.push(cell.replace(/\r$/, ""));
      rows.push(row);
      row = [];
      cell = "";
    } else cell += sign;
  }
  if (rows.length < most && (cell || row.length)) rows.push([...row, cell]);
  return rows;
}

/** @param {{text: string, separator: string}} props */
function Table({ text, separator }) {
  const [head = [], ...rows] = rowsOf(text, separator, ROWS + 2);
  const cells = (/** @type {string[]} */ row, /** @type {"th" | "td"} */ tag) => row.slice(0, COLUMNS).map((cell) => html`<${tag}>${visible(cell)}</>`);
  return html`<div class="table-wrap" tabindex="0" role="region" aria-label=${words.table}><table class="table">
      <thead><tr>${cells(head, "th")}</tr></thead><tbody>${rows.slice(0, ROWS).map((row) => html`<tr>${cells(row, "td")}</tr>`)}</tbody></table></div>
    ${(rows.length > ROWS || head.length > COLUMNS) && html`<p class="small quiet">${words.tableCut(ROWS, COLUMNS)}</p>`}`;
}
