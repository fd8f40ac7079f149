// @ts-check
// Text that the user decides about, with its hidden characters shown: the twin of `visible` in tools/sanitize.py.

// Control characters; directions that make text read another way; ends of lines to some; invisible letters.
const HIDDEN = new RegExp(
  String.raw`[\r\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u206f\ud800-\udfff\u{e0000}-\u{e007f}` +
    String.raw`\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2060-\u2064\u3164` +
    String.raw`\ufeff\uffa0\u{e0100}-\u{e01ef}]`,
  "gu",
);

/**
 * The text with what would be hidden, or would show it as another text, as `\u202e`. Line feeds and tabs stay.
 * @param {string} text
 */
export function visible(text) {
  return text.replaceAll("\r\n", "\n").replace(HIDDEN, (sign) => {
    const code = /** @type {number} */ (sign.codePointAt(0));
    if (code <= 0xff) return `\\x${code.toString(16).padStart(2, "0")}`;
    return code <= 0xffff ? `\\u${code.toString(16).padStart(4, "0")}` : `\\U${code.toString(16).padStart(8, "0")}`;
  });
}
