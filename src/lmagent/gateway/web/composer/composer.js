// @ts-check
// The message box: text, pictures, commands and files; kept in this browser until the gateway has it.
import { post, randomId, sessionPath } from "../session/api.js";
import { Attachments, useAttachments } from "./attachments.js";
import { ATTACHED } from "../session/fold.js";
import { wanted } from "../header.js";
import { Icon } from "../icons.js";
import { html, signal, useEffect, useLayoutEffect, useRef, useState } from "../lib.js";
import { Markdown } from "../text/markdown.js";
import { isCommand, Menu, useMenu } from "./menus.js";
import { Queued, wordsOf } from "./outbox.js";
import { Square, useGrowing } from "../parts.js";
import { go, route, sessionHref } from "../router.js";
import { beginSession, leaveFirst, Session } from "../session/session.js";
import { complain, drawer, store, stored } from "../session/state.js";
import { busy } from "../session/status.js";
import { chat as words } from "../words/conversation.js";

/** @typedef {import("../session/session.js").Part} Part */
/** @typedef {import("../session/api.js").ApiError} ApiError */

/** A session's answer to a command: Markdown or an error, and its session. */
const NOTHING = { session: "", text: "", fault: "" };
const answered = signal(NOTHING);

/** @param {string} session */
const draftKey = (session) => `lmagent.draft.${session || "new"}`;

/** Text that was sent or being written in a session, and is in no log. @param {Session} session */
export function unsent({ id, outbox }) {
  return [...outbox.value.map(wordsOf), stored(draftKey(id), "")].filter(Boolean).join("\n\n");
}

/** Take it along to a new session, out of one that is not there any more. @param {Session} session */
export function takeAlong(session) {
  const words = [stored(draftKey(""), ""), unsent(session)].filter(Boolean).join("\n\n");
  session.keep([]);
  store(draftKey(session.id), "");
  store(draftKey(""), words);
}

/** The session in which the user last wrote. */
let last = "";

/** Go back there, with a command before the text that is being written. @param {string} command */
export function insert(command) {
  store(draftKey(last), command + stored(draftKey(last), ""));
  handOver = true;
  go(sessionHref(last));
}

/** @param {{session: Session | null, example: {text: string, count: number}}} props */
export function Composer({ session, example }) {
  const id = session?.id ?? "";
  last = id;
  const field = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const [text, setText] = useState(() => stored(draftKey(id), ""));
  const [sending, setSending] = useState(false);
  const running = session !== null && busy(session.view.value);
  const write = (/** @type {string} */ next) => {
    setText(next);
    store(draftKey(id), next);
  };
  const attachments = useAttachments(id, (name) => {
    const before = field.current?.value ?? "";
    write(`${before}${before && !/\s$/.test(before) ? " " : ""}${name}`);
  });
  const menu = useMenu(text, field, write);
  const past = useHistory(session, text, write);
  useGrowing(field, text);
  useLayoutEffect(() => {
    // A page that has just been loaded is written in; on a touch screen the focus would open the keyboard.
    const fresh = document.activeElement === document.body && matchMedia("(hover: hover) and (pointer: fine)").matches;
    if (handOver || fresh) field.current?.focus();
    handOver = false;
  }, []);
  useStopKey(session);
  useLayoutEffect(() => {
    if (!example.count) return;
    write(example.text);
    field.current?.focus();
  }, [example.count]);

  const returned = session?.returned.value;
  useLayoutEffect(() => {
    if (!session || !returned?.length) return;
    session.returned.value = [];
    write([field.current?.value, ...returned.map((item) => item.text.split(ATTACHED)[0])].filter(Boolean).join("\n\n"));
    returned.forEach((item) => attachments.returned(id, item));
    field.current?.focus();
  }, [returned]);

  /** A request made while a message or an image was still on its way; carried out when it has arrived. */
  const asked = useRef(/** @type {"submit" | "steer" | ""} */ (""));
  const waiting = sending || attachments.busy;
  useEffect(() => {
    const type = asked.current;
    if (waiting || !type) return;
    asked.current = "";
    if (!attachments.pictures.some(({ error }) => error)) submit(type);
  }, [waiting]);
  const submit = async (/** @type {"submit" | "steer"} */ type) => {
    const typed = field.current?.value ?? ""; // the drawn text may be older than the typed one
    const said = typed.trim();
    const pictures = attachments.ready;
    if (waiting) asked.current = type;
    if (waiting || (!said && !pictures.length)) return;
    setSending(true);
    answered.value = NOTHING;
    menu.close();
    past.reset();
    if (field.current) field.current.value = ""; // at once: letters typed before it is drawn belong to the next message
    setText("");
    try {
      if (isCommand(typed)) await runCommand(id, said);
      else await say(session, parts(said, pictures), type);
      attachments.drop(pictures);
      if (stored(draftKey(id), "") === typed) store(draftKey(id), "");
    } catch (error) {
      if (isCommand(typed)) answered.value = { session: id, text: "", fault: /** @type {ApiError} */ (error).words };
      else complain(error);
      if (!field.current?.value) write(typed);
    }
    setSending(false);
  };
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    if (event.isComposing || menu.pressed(event) || past.pressed(event)) return;
    const sends = event.key === "Enter" && !event.shiftKey && !event.altKey && !matchMedia("(pointer: coarse)").matches;
    if (!sends && !(event.key === "Enter" && (event.ctrlKey || event.metaKey))) return;
    event.preventDefault();
    submit(running ? "steer" : "submit");
  };
  const empty = !text.trim() && !attachments.ready.length;
  return html`<section class="composer" aria-label=${words.write}>
    <div class="column">
      <${Answer} session=${id} />
      <${Queued} session=${session} />
      <${Menu} menu=${menu} />
      <div class="box">
        <${Attachments} given=${attachments} />
        <textarea id="message" ref=${field} aria-label=${words.message} rows="1" value=${text}
          placeholder=${running ? words.add : words.ask}
          aria-autocomplete="list" aria-controls=${menu.open ? "menu" : undefined}
          aria-activedescendant=${menu.open ? `menu-${menu.at}` : undefined}
          onInput=${(/** @type {any} */ event) => (write(event.target.value), menu.look())}
          onKeyDown=${pressed} onPaste=${attachments.pasted} onBlur=${menu.left}></textarea>
        <div class="row tools">
          ${attachments.button}
          <span class="grow"></span>
          ${running && html`<button class="button" title=${words.stopKey} onClick=${() => session.interrupt()}>
            <${Icon} name="stop" />${words.stop}</button>`}
          ${running && html`<button class="button" disabled=${empty || sending} title=${words.afterTurn}
            onClick=${() => submit("submit")}>${words.queue}</button>`}
          <button class="button main" disabled=${empty || sending || attachments.busy} onClick=${() => submit(running ? "steer" : "submit")}
            title=${running ? words.afterStep : "Enter"}><${Icon} name="send" /><span class="roomy">${words.send}</span></button>
        </div>
      </div>
    </div>
  </section>`;
}

/** @param {string} text @param {{id: string, media_type: string}[]} pictures @returns {Part[]} */
function parts(text, pictures) {
  /** @type {Part[]} */
  const made = pictures.map(({ id, media_type }) => ({ type: "image", media_type, data: `upload:${id}` }));
  return text ? [...made, { type: "text", text }] : made;
}

/** Say it in the session, or in a new one. @param {Session | null} session @param {Part[]} said @param {"submit" | "steer"} type */
async function say(session, said, type) {
  if (session) {
    session.say(said, type);
    return;
  }
  const id = await beginSession(wanted.value);
  leaveFirst();
  new Session(id).keep([{ id: randomId(), parts: said, type, error: "" }]);
  wanted.value = { mode: "", model: "" };
  move(id);
}

/** Whether the next box takes the focus of the one that it replaces. */
let handOver = false;

/** Go to a session that has just begun, with the text written meanwhile and the focus. @param {string} id */
function move(id) {
  const box = /** @type {HTMLTextAreaElement | null} */ (document.getElementById("message"));
  handOver = document.activeElement === box;
  store(draftKey(id), box?.value ?? "");
  store(draftKey(""), "");
  go(sessionHref(id));
}

/** Run a slash command. @param {string} session @param {string} line */
async function runCommand(session, line) {
  const { text, session: other, fresh } = await post(session ? sessionPath(session, "/slash") : "/api/slash", { line });
  answered.value = { session: other || session, text, fault: "" };
  if (other && !session) move(other);
  else if (other && other !== session) go(sessionHref(other));
  else if (fresh) go("#/");
}

/** Whether an answer is laid out in columns, for letters of one width. @param {string} text */
const inColumns = (text) => /\S {3,}\S/.test(text) && !/^(```|\|)/m.test(text);

/** The answer to a command. @param {{session: string}} props */
function Answer({ session }) {
  const { text, fault } = answered.value;
  if (!(text || fault) || answered.value.session !== session) return null;
  return html`<div class=${fault ? "answer card fault" : "answer card"} role=${fault ? "alert" : "status"}>
    <div class="grow">${fault || (inColumns(text) ? html`<pre tabindex="0">${text}</pre>` : html`<${Markdown} text=${text} />`)}</div>
    <${Square} icon="close" label=${words.closeAnswer} onClick=${() => (answered.value = NOTHING)} /></div>`;
}

/** Whether Escape belongs to something that it closes or empties. @param {KeyboardEvent} event */
function escapeIsTaken(event) {
  if (event.defaultPrevented || event.isComposing || event.repeat) return true;
  const field = /** @type {Element} */ (event.target).closest?.("input, select, textarea, [role=tree]");
  return Boolean((field && field.id !== "message") || document.querySelector("dialog[open], .popup") || drawer.peek() || route.peek().panel);
}

/**
 * Escape stops the running turn where nothing else is closed by it, as in the terminal. Where nothing runs it leaves the
 * box, so that single letters are shortcuts.
 * @param {Session | null} session
 */
function useStopKey(session) {
  useEffect(() => {
    const pressed = (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Escape" || escapeIsTaken(event)) return;
      event.preventDefault();
      if (session && busy(session.view.peek())) session.interrupt();
      else document.getElementById("message")?.blur();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [session]);
}

/**
 * Up in an empty box brings back earlier messages.
 * @param {Session | null} session @param {string} text @param {(text: string) => void} write
 */
function useHistory(session, text, write) {
  const at = useRef(-1);
  const reset = () => {
    at.current = -1;
  };
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    const step = event.key === "ArrowUp" ? 1 : event.key === "ArrowDown" ? -1 : 0;
    if (!step || !session || (at.current < 0 && (text || step < 0))) return false;
    const { blocks, waiting } = session.view.peek();
    const heard = [...blocks, ...waiting].flatMap((block) => (block.kind === "user" ? [block.text] : []));
    const said = [...heard, ...session.outbox.peek().map(wordsOf)].reverse();
    if (at.current >= 0 && text !== said[at.current]) {
      reset();
      return false;
    }
    const next = at.current + step;
    if (next >= said.length) return false;
    event.preventDefault();
    at.current = next;
    write(next < 0 ? "" : (said[next] ?? ""));
    return true;
  };
  return { pressed, reset };
}
