// @ts-check
// The lines of a diff as people read them: numbered, side by side, with what differs within a line.
import { HUNK, kindsOf } from "./difflines.js";

/**
 * @typedef {Object} Row a line of a diff as it is shown
 * @property {"added" | "removed" | "same" | "gap" | "note"} kind `gap` stands for lines that are the same and left out
 * @property {string} text without its sign
 * @property {number} before its number in the earlier text; 0 for none
 * @property {number} after its number in the later text; 0 for none
 */

/** The lines as they are shown: numbered, without the headings that are for programs. @param {string[]} lines @returns {Row[]} */
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

/** Lines side by side: what was removed beside what was added in its place. @param {Row[]} rows @returns {[Row | null, Row | null][]} */
export function pairsOf(rows) {
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
