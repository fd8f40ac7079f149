// @ts-check
// Where formulas are in a text: `$…$`, `$$…$$`, `\(…\)` and `\[…\]`, and never an amount of money.

/** @typedef {{type: "maths", raw: string, text: string, display: boolean}} Maths */

const LONGEST = 5000;

/** @param {string} src @param {string} open @param {string} close @param {boolean} display @returns {Maths | undefined} */
function between(src, open, close, display) {
  if (!src.startsWith(open)) return undefined;
  const end = src.slice(0, LONGEST).indexOf(close, open.length);
  const text = end < 0 ? "" : src.slice(open.length, end);
  if (!text.trim() || /\n[ \t]*\n/.test(text)) return undefined;
  return { type: "maths", raw: src.slice(0, end + close.length), text, display };
}

/**
 * A formula between single dollars: no space inside of them, nothing of a word or number right after, and more than an
 * amount or words, so that `$5 and 6$`, `$HOME/$USER` and `from $5 to 10$` stay as they are.
 * @param {string} src @returns {Maths | undefined}
 */
function inDollars(src) {
  const [raw = "", text = ""] = /^\$((?:[^$`\n\\]|\\[^\n]){1,500})\$(?![\w$])/.exec(src) ?? [];
  if (!raw || /^\s|\s$/.test(text)) return undefined;
  const isTeX = /[\\^_={}<>]/.test(text) || /^[A-Za-z]'?$|^[-+]?[\d.]*[A-Za-z]?$|^[A-Za-z]?\([A-Za-z](, ?[A-Za-z])*\)$/.test(text);
  const isSum = /^[\w.() ]+([-+*/|] ?[\w.() ]+)+$/.test(text) && !/[A-Za-z]{3}/.test(text) && !/^\d[\d.,]*[-+] ?$/.test(text);
  return isTeX || isSum ? { type: "maths", raw, text, display: false } : undefined;
}

/** @param {string} src */
const block = (src) => {
  const found = between(src, "$$", "$$", true) ?? between(src, "\\[", "\\]", true);
  return found && /^[ \t]*(\n|$)/.test(src.slice(found.raw.length, found.raw.length + 200)) ? found : undefined;
};

/** @param {string} src */
const inline = (src) =>
  between(src, "$$", "$$", true) ?? between(src, "\\[", "\\]", true) ?? between(src, "\\(", "\\)", false) ?? inDollars(src);

/** @param {RegExp} pattern @returns {(src: string) => number | undefined} */
const begins = (pattern) => (src) => {
  const found = pattern.exec(src);
  return found ? found.index + (found[1]?.length ?? 0) : undefined;
};

/** For the lexer: how formulas are told from text. */
export const MATHS = {
  block: [block],
  inline: [inline],
  startBlock: [begins(/(\n)(?:\$\$|\\\[)/)],
  startInline: [begins(/(^|[^\w\\$])(?:\$|\\[([])/)],
};
