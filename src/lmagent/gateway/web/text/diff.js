// @ts-check
// A diff as people read it: numbered lines with signs and colours, side by side where there is room; long ones are cut.
import { HUNK, kindsOf } from "./difflines.js";
import { html, useState } from "../lib.js";
import { visible } from "../session/visible.js";
import { changes as words } from "../words/files.js";


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

/** Removed lines beside the lines in their place. @param {[Row | null, Row | null][]} pairs */
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

/** A preview of the action: as a diff where it is one, else as text. @param {{text: string, label: string}} props */
export function Preview({ text, label }) {
  const isDiff = /^(@@ |\+\+\+ |--- )/m.test(text);
  if (isDiff) return html`<${Diff} text=${text} label=${label} />`;
  return html`<pre class="output" tabindex="0" role="region" aria-label=${label}>${visible(text)}</pre>`;
}

/**
 * @typedef {Object} Row a line of a diff as it is shown
 * @property {"added" | "removed" | "same" | "gap" | "note"} kind `gap` replaces equal lines that are left out
 * @property {string} text without its sign
 * @property {number} before its number in the earlier text; 0 for none
 * @property {number} after its number in the later text; 0 for none
 */

/** The lines to show: numbered, without the headings that are for programs. @param {string[]} lines @returns {Row[]} */
export function rowsOf(lines) {
  const kinds = kindsOf(lines);
  let before = 0;
  let after = 0;
  /** @type {Row[]} */
  const rows = [];
  lines.forEach((line, index) => {
    const kind = kinds[index];
    const hunk = kind === "place" && HUNK.exec(line);
    if (hunk) {
      if (rows.length || Number(hunk[1]) > 1) rows.push({ kind: "gap", text: "⋯", before: 0, after: 0 });
      before = Number(hunk[1]);
      after = Number(hunk[3]);
    } else if (kind === "place" || line.startsWith("\\")) {
      if (!/^(---|\+\+\+) /.test(line)) rows.push({ kind: "note", text: line.replace(/^\\ /, ""), before: 0, after: 0 });
    } else {
      const row = { kind: kind ?? "same", text: line.slice(1), before: kind === "added" ? 0 : before++, after: kind === "removed" ? 0 : after++ };
      rows.push(/** @type {Row} */ (row));
    }
  });
  return rows;
}

/**
 * Where two lines differ: the part that is not the same at both ends, by whole words. Nothing where hardly anything is the same.
 * @param {string} before @param {string} after
 * @returns {{start: number, before: number, after: number} | null} `before` and `after` are where the part ends in each
 */
export function differing(before, after) {
  const most = Math.min(before.length, after.length);
  let start = 0;
  while (start < most && before[start] === after[start]) start++;
  while (start > 0 && /\w/.test(before[start - 1] ?? "") && /\w/.test(`${before[start] ?? ""}${after[start] ?? ""}`)) start--;
  let same = 0;
  while (same < most - start && before.at(-1 - same) === after.at(-1 - same)) same++;
  while (same > 0 && /\w/.test(before.at(-same) ?? "") && /\w/.test(`${before.at(-1 - same) ?? ""}${after.at(-1 - same) ?? ""}`)) same--;
  if (2 * (start + same) < most) return null;
  return { start, before: before.length - same, after: after.length - same };
}

/** Lines side by side: removed ones beside those added in their place. @param {Row[]} rows @returns {[Row | null, Row | null][]} */
function pairsOf(rows) {
  /** @type {[Row | null, Row | null][]} */
  const pairs = [];
  for (let at = 0; at < rows.length; ) {
    const gone = runOf(rows, at, "removed");
    const come = runOf(rows, at + gone.length, "added");
    const size = Math.max(gone.length, come.length);
    for (let line = 0; line < size; line++) pairs.push([gone[line] ?? null, come[line] ?? null]);
    at += gone.length + come.length;
    const row = rows[at];
    if (!size && row) {
      pairs.push([row, row]);
      at++;
    }
  }
  return pairs;
}

/** @param {Row[]} rows @param {number} from @param {Row["kind"]} kind */
function runOf(rows, from, kind) {
  let end = from;
  while (rows[end]?.kind === kind) end++;
  return rows.slice(from, end);
}
