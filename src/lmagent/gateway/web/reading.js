// @ts-check
// Reading Markdown: the lexer, kept from texts that somebody made to keep it busy.
import { MATHS } from "./maths.js";
import { Lexer, Tokenizer } from "./vendor/marked.js";

/** @typedef {import("./vendor/marked.js").Token} Token */

const LONG = /\S{2000}/;
/** A table of more cells is shown as text: a line of two characters makes as many as its head has. */
const CELLS = 20_000;

/**
 * Whether a text has a word so long that nobody wrote it: looking for signs in it takes time that grows with the square
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

class Reader extends Lexer {
  /** @param {string} src @param {Token[]} [tokens] @returns {Token[]} */
  inlineTokens(src, tokens = []) {
    if (!isTangled(src)) return super.inlineTokens(src, tokens);
    tokens.push({ type: "text", raw: src, text: src, escaped: false });
    return tokens;
  }
}

/** Tokens of a text; the text itself as one where the lexer gives up. @param {string} text @returns {any[]} */
export function read(text) {
  try {
    return new Reader({ gfm: true, tokenizer: new Tables(), extensions: /** @type {any} */ (MATHS) }).lex(text);
  } catch {
    return [{ type: "text", raw: text, text }];
  }
}
