// @ts-check
// The lists that open while one writes: commands after a slash, files after an @.
import { get } from "../session/api.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib.js";
import { chat as words } from "../words/conversation.js";

/** @typedef {{value: string, label: string, help: string}} Choice */
/** @typedef {{name: string, usage: string, help: string}} Command */

/** @type {Promise<Command[]> | undefined} */
let commands;

/** The commands there are; asked for once. */
function allCommands() {
  commands ??= get("/api/slash").then((answer) => answer.commands).catch(() => {
    commands = undefined;
    return [];
  });
  return commands;
}

/** @param {Command} command */
const bare = (command) => command.name.replace(/^\//, "");

/** Whether a text is meant as a command, known or not, as in the terminal: no path, and no space before it. @param {string} text */
export const isCommand = (text) => /^\/[\p{L}\p{N}_:-]*(\s|$)/u.test(text);

/** The text before the caret that opens a list. @param {string} before @returns {{kind: "command" | "file", word: string} | null} */
function opening(before) {
  const command = /^\/([\w:-]*)$/.exec(before);
  if (command) return { kind: "command", word: command[1] ?? "" };
  const file = /(?:^|\s)@([^\s@]*)$/.exec(before);
  return file ? { kind: "file", word: file[1] ?? "" } : null;
}

/**
 * Whether a choice may fit: it begins with the command, or has the letters of the file in their order.
 * @param {Choice} choice @param {{kind: "command" | "file", word: string}} wanted
 */
function mayFit({ value, label }, { kind, word }) {
  if (kind === "command") return label.startsWith(`/${word.toLowerCase()}`);
  let at = -1;
  const path = label.toLowerCase();
  return value.startsWith("@") && [...word.toLowerCase()].every((letter) => (at = path.indexOf(letter, at + 1)) >= 0);
}

/** @param {{kind: "command" | "file", word: string}} wanted @param {AbortSignal} signal @returns {Promise<Choice[]>} */
async function choicesFor({ kind, word }, signal) {
  if (kind === "command") {
    const fitting = (await allCommands()).filter((command) => bare(command).startsWith(word.toLowerCase()));
    return fitting.map((command) => ({ value: `/${bare(command)} `, label: `/${bare(command)}`, help: command.help }));
  }
  const { paths } = await get(`/api/find?q=${encodeURIComponent(word)}&limit=12`, signal);
  return paths.map((/** @type {string} */ path) => ({ value: `@${path} `, label: path, help: "" }));
}

/**
 * @param {string} text
 * @param {{current: HTMLTextAreaElement | null}} field
 * @param {(text: string) => void} write
 */
export function useMenu(text, field, write) {
  const [choices, setChoices] = useState(/** @type {Choice[]} */ ([]));
  const [at, setAt] = useState(0);
  const asked = useRef(/** @type {AbortController | null} */ (null));
  useEffect(() => () => asked.current?.abort(), []);

  const close = () => {
    asked.current?.abort();
    setChoices([]);
  };
  const look = async () => {
    asked.current?.abort();
    const element = field.current;
    const wanted = element && opening(element.value.slice(0, element.selectionStart));
    if (!wanted) return setChoices([]);
    // Until the answer is there, Enter must not take what fitted fewer letters, and does not fit these.
    setChoices((shown) => shown.filter((choice) => mayFit(choice, wanted)));
    setAt(0);
    const mine = new AbortController();
    asked.current = mine;
    const found = await choicesFor(wanted, mine.signal).catch(() => []);
    if (mine.signal.aborted) return;
    setChoices(found);
    setAt(0);
  };
  const take = (/** @type {Choice} */ choice) => {
    const element = field.current;
    if (!element) return;
    const { value, selectionStart: caret } = element;
    const before = value.slice(0, caret).replace(/(^\/[\w-]*|@[^\s@]*)$/, () => choice.value);
    element.value = before + value.slice(caret);
    element.focus();
    element.setSelectionRange(before.length, before.length); // at once: the next letter belongs behind it
    write(element.value);
    close();
  };
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    if (!choices.length) return false;
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    const choice = choices[at];
    if (step) setAt((at + step + choices.length) % choices.length);
    else if (event.key === "Escape") {
      close();
      field.current?.focus();
    }
    else if ((event.key === "Tab" || (event.key === "Enter" && !event.shiftKey)) && choice && choice.value.trim() !== text.trim()) take(choice);
    else return false;
    event.preventDefault();
    return true;
  };
  /** The list stays while the focus is in it or in the box: it is focused to be scrolled. */
  const left = (/** @type {FocusEvent} */ { relatedTarget }) => {
    if (!/** @type {Element | null} */ (relatedTarget)?.matches("#menu, #message")) close();
  };
  return { choices, at, open: choices.length > 0, look, close, left, take, pressed };
}

/** @param {{menu: ReturnType<typeof useMenu>}} props */
export function Menu({ menu }) {
  useLayoutEffect(() => document.getElementById(`menu-${menu.at}`)?.scrollIntoView({ block: "nearest" }), [menu.at]);
  if (!menu.open) return null;
  return html`<ul class="bare suggestions card" id="menu" role="listbox" aria-label=${words.suggestions}
    tabindex="0" aria-activedescendant=${`menu-${menu.at}`} onKeyDown=${menu.pressed} onBlur=${menu.left}>
    ${menu.choices.map((choice, index) => html`<li key=${choice.value} id=${`menu-${index}`} role="option" class="entry"
      aria-selected=${index === menu.at} onPointerDown=${(/** @type {Event} */ event) => (event.preventDefault(), menu.take(choice))}>
      <span class="cut">${choice.label}</span><span class="cut small quiet grow">${choice.help}</span></li>`)}
  </ul>`;
}
