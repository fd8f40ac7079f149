// @ts-check
// A diff as people read it: numbered lines with signs and colours, side by side where there is room; long ones are cut.
import { differing, pairsOf, rowsOf } from "./diffrows.js";
import { html, useState } from "./lib.js";
import { visible } from "./visible.js";
import { changes as words } from "./words/files.js";

/** @typedef {import("./diffrows.js").Row} Row */

const SHOWN = 200;

/** @param {{text: string, label?: string, split?: boolean}} props */
export function Diff({ text, label = words.label, split = false }) {
  const [all, setAll] = useState(false);
  const rows = rowsOf(visible(text).replace(/\n$/, "").split("\n"));
  const pairs = pairsOf(rows);
  const [shown, count] = split ? [pairs, pairs.length] : [rows, rows.length];
  const some = all ? shown : shown.slice(0, SHOWN);
  const digits = Math.max(...rows.map((row) => String(Math.max(row.before, row.after)).length));
  const others = partners(pairs);
  return html`<div class="diff">
    <pre class=${split ? "split" : ""} tabindex="0" role="region" aria-label=${label}>${split
      ? /** @type {[Row | null, Row | null][]} */ (some).map(([left, right]) => html`<span class="pair">
          <${Line} row=${left} other=${right} at=${numbered(left?.before, digits)} /><${Line} row=${right} other=${left} at=${numbered(right?.after, digits)} /></span>`)
      : /** @type {Row[]} */ (some).map((row) => html`<${Line} row=${row} other=${others.get(row) ?? null}
          at=${`${numbered(row.before, digits)} ${numbered(row.after, digits)}`} />`)}</pre>
    ${some.length < count && html`<button class="button plain" onClick=${() => setAll(true)}>${words.moreLines(count - some.length)}</button>`}
  </div>`;
}

/** What was removed and what came in its place, each by the other. @param {[Row | null, Row | null][]} pairs */
function partners(pairs) {
  /** @type {Map<Row, Row>} */
  const others = new Map();
  for (const [left, right] of pairs) {
    if (left && right && left !== right) others.set(left, right).set(right, left);
  }
  return others;
}

/** @param {number | undefined} number @param {number} digits */
const numbered = (number, digits) => (number ? String(number) : "").padStart(digits);

/** @param {{row: Row | null, other: Row | null, at: string}} props `other` is the line in whose place it stands */
function Line({ row, other, at }) {
  if (!row) return html`<span class="line none"></span>`;
  const { kind, text } = row;
  const Tag = kind === "added" ? "ins" : kind === "removed" ? "del" : "span";
  const sign = kind === "added" ? "+" : kind === "removed" ? "-" : " ";
  const part = other && row !== other ? differing(text, other.text) : null;
  const inside = part ? html`${text.slice(0, part.start)}<b>${text.slice(part.start, part.before)}</b>${text.slice(part.before)}` : text;
  return html`<${Tag} class=${`line ${kind}`} data-at=${kind === "gap" || kind === "note" ? "" : at}>${sign}${inside}${"\n"}</>`;
}

/** A preview of what is asked for: as a diff where it is one, else as it is. @param {{text: string, label: string}} props */
export function Preview({ text, label }) {
  const isDiff = /^(@@ |\+\+\+ |--- )/m.test(text);
  if (isDiff) return html`<${Diff} text=${text} label=${label} />`;
  return html`<pre class="output" tabindex="0" role="region" aria-label=${label}>${visible(text)}</pre>`;
}
