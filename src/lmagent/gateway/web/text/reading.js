// @ts-check
// Reading Markdown: the lexer, guarded against texts that were made to keep it busy.
import { Lexer, Tokenizer } from "../vendor/marked.js";

/** @typedef {import("../vendor/marked.js").Token} Token */

const LONG = /\S{2000}/;
/** A table of more cells is shown as text: a line of two characters makes as many as its head has. */
const CELLS = 20_000;

/**
 * Whether a text has a word too long for prose: looking for signs in it takes time that grows with the square
 * of its length, here as in the highlighter.
 * @param {string} text
 */
export function isTangled(text) {
  return LONG.test(text);
}

class Tables extends Tokenizer {
  /** @param {string} src */
  table(src) {
    const end = src.search(/\n[ \t]*(\n|$)/);
    const lines = (end < 0 ? src : src.slice(0, end)).split("\n");
    const columns = (lines[0] ?? "").split("|").length;
    return columns * lines.length > CELLS ? undefined : super.table(src);
  }
}

/** Characters at the end of a paragraph that grows which are read again: an address or an emphasis may end in them. */
const OPEN = 400;
/** What may begin something: a text with one of these may become part of a pair with what comes. */
const MARKS = /[*_~`[<$\\]/;

/**
 * The beginning of a paragraph that no more text can change, and its tokens.
 * @typedef {{text: string, tokens: Token[]}} Settled
 */

/** Nothing is settled. @type {Settled} */
export const UNSETTLED = { text: "", tokens: [] };

/**
 * The settled part of a paragraph that grows: its tokens before the first mark that has no partner yet, and then up to the
 * last of them that is more than text and that a space follows: texts side by side would be joined.
 * @param {Token[]} tokens of the paragraph
 * @returns {Settled}
 */
export function settled(tokens) {
  const length = tokens.reduce((sum, { raw }) => sum + raw.length, 0) - OPEN;
  let text = "";
  let end = 0;
  let known = "";
  for (const [place, token] of tokens.entries()) {
    if (text.length + token.raw.length > length || (token.type === "text" && MARKS.test(token.raw))) break;
    text += token.raw;
    if (token.type !== "text" && /^\s/.test(tokens[place + 1]?.raw ?? "")) [end, known] = [place + 1, text];
  }
  return { text: known, tokens: tokens.slice(0, end) };
}

class Reader extends Lexer {
  /** @param {Settled} known @param {any} options */
  constructor(known, options) {
    super(options);
    this.known = known;
  }

  /** @param {string} src @param {Token[]} [tokens] @returns {Token[]} */
  inlineTokens(src, tokens = []) {
    if (isTangled(src)) {
      tokens.push({ type: "text", raw: src, text: src, escaped: false });
      return tokens;
    }
    const { text } = this.known;
    if (!text || !src.startsWith(text)) return super.inlineTokens(src, tokens);
    tokens.push(...this.known.tokens, ...super.inlineTokens(src.slice(text.length)));
    return tokens;
  }
}

/** Tokens of a text; the text itself as one where the lexer gives up. @param {string} text @param {Settled} [known] @returns {any[]} */
export function read(text, known = UNSETTLED) {
  try {
    return new Reader(known, { gfm: true, tokenizer: new Tables(), extensions: /** @type {any} */ (MATHS) }).lex(text);
  } catch {
    return [{ type: "text", raw: text, text }];
  }
}

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
 * amount or words, so that `$5 and 6$`, `$HOME/$USER` and `from $5 to 10$` stay text.
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

/** Extensions of the lexer that find formulas. */
const MATHS = {
  block: [block],
  inline: [inline],
  startBlock: [begins(/(\n)(?:\$\$|\\\[)/)],
  startInline: [begins(/(^|[^\w\\$])(?:\$|\\[([])/)],
};
