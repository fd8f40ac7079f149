// @ts-check
// What each line of a unified diff is, by what its hunks hold: an added line `++ x` is no heading, nor is a removed `-- x`.

/** @typedef {"added" | "removed" | "place" | "same"} Kind */

export const HUNK = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/;

/** @param {string[]} lines @returns {Kind[]} */
export function kindsOf(lines) {
  let before = 0;
  let after = 0;
  return lines.map((line, index) => {
    const sign = line[0] ?? " ";
    if (before > 0 || after > 0) {
      if (sign === "…" || sign === "\\") return "place"; // the rest is left out, or a line has no end
      if (sign !== "+") before--;
      if (sign !== "-") after--;
      return sign === "+" ? "added" : sign === "-" ? "removed" : "same";
    }
    const hunk = HUNK.exec(line);
    if (hunk) {
      before = Number(hunk[2] ?? 1);
      after = Number(hunk[4] ?? 1);
      return "place";
    }
    if (line.startsWith("--- ") && lines[index + 1]?.startsWith("+++ ")) return "place";
    if (line.startsWith("+++ ") && lines[index - 1]?.startsWith("--- ")) return "place";
    return sign === "+" ? "added" : sign === "-" ? "removed" : "same";
  });
}

/** How many lines a unified diff adds and removes. @param {string} text @returns {{added: number, removed: number}} */
export function countDiff(text) {
  const kinds = kindsOf(text.split("\n"));
  const count = (/** @type {Kind} */ wanted) => kinds.filter((kind) => kind === wanted).length;
  return { added: count("added"), removed: count("removed") };
}
