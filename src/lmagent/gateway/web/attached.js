// @ts-check
// Files whose text a terminal has added to a message: shown as chips, and never as words of the user.
import { ATTACHED } from "./fold.js";

/** @typedef {{name: string, text: string}} Attached `name` with the number of its lines */

/**
 * The words of a message, the rest of it as it was sent, and the files in that.
 * @param {string} whole
 * @returns {{text: string, rest: string, files: Attached[]}}
 */
export function splitAttached(whole) {
  const [text = "", ...pieces] = whole.split(ATTACHED);
  const files = pieces.map((piece) => {
    const [head = "", ...lines] = piece.split("\n");
    return { name: head.replace(/\]$/, ""), text: lines.join("\n") };
  });
  return { text, rest: whole.slice(text.length), files };
}
