// @ts-check
// What can be done with a message: copied, sent again in other words, answered once more, continued from in a branch.
// Whatever changes the conversation happens in a copy of the session; the one that is read stays as it is.
import { get, randomId, request, send, sessionPath } from "../session/api.js";
import { splitAttached } from "./blocks.js";
import { Icon } from "../icons.js";
import { html, signal, useEffect, useLayoutEffect, useRef, useState } from "../lib.js";
import { copy, Square, useGrowing } from "../parts.js";
import { useAct, useData } from "../panels/kit.js";
import { go, sessionHref } from "../router.js";
import { current, Session } from "../session/session.js";
import { complain, store, stored } from "../session/state.js";
import { common, messages as words } from "../words/conversation.js";

/** @typedef {import("../session/wire.js").UserBlock} UserBlock */
/** @typedef {import("../session/wire.js").TextBlock} TextBlock */
/** @typedef {import("../session/session.js").Part} Part */
/** @typedef {{turn: number, at: number, sessions: {id: string, title: string}[]}} Fork */

/** Where the session on the screen and its copies part. */
const forks = signal({ session: "", rows: /** @type {Fork[]} */ ([]) });

/** Fetched once for each session that is shown. @param {string} session */
async function learnForks(session) {
  if (!session || forks.peek().session === session) return;
  forks.value = { session, rows: [] };
  try {
    const { forks: rows } = await get(sessionPath(session, "/branches"));
    if (forks.peek().session === session) forks.value = { session, rows };
  } catch (error) {
    forks.value = { session: "", rows: [] }; // asked for again by the next message that is shown
    complain(error);
  }
}

/** The images of a message, uploaded for another one. @param {Session} session @param {UserBlock} block */
async function imagesOf(session, { id, images }) {
  /** @type {Part[]} */
  const parts = [];
  for (let number = 0; number < images; number++) {
    const body = await (await request("GET", sessionPath(session.id, `/images/${encodeURIComponent(id)}/${number}`))).blob();
    const upload = await (await request("POST", "/api/uploads", { body })).json();
    parts.push({ type: "image", media_type: upload.media_type, data: `upload:${upload.id}` });
  }
  return parts;
}

/**
 * Continue in a copy of the session that ends before a turn.
 * @param {Session} session @param {number} turn @param {Part[]} parts a message to send in it at once; empty for none
 */
export async function branch(session, turn, parts) {
  const { session: id } = await send(session.id, { type: "fork", before_turn: turn });
  if (parts.length) new Session(id).keep([{ id: randomId(), parts, type: "submit", error: "" }]);
  go(sessionHref(id));
}

/** @param {{fork: Fork | undefined}} props */
function Switch({ fork }) {
  if (!fork) return null;
  const { at, sessions } = fork;
  const step = (/** @type {number} */ by) => () => go(sessionHref(sessions[at + by]?.id ?? ""));
  return html`<span class="switch" role="group" aria-label=${words.branches}>
    <${Square} icon="left" label=${words.previousBranch} disabled=${at === 0} onClick=${step(-1)} />
    <span class="small quiet">${at + 1} / ${sessions.length}</span>
    <${Square} icon="right" label=${words.nextBranch} disabled=${at === sessions.length - 1} onClick=${step(1)} />
  </span>`;
}

/** @param {{block: UserBlock, opens: boolean, edit: () => void}} props `opens`: its turn begins with it */
export function MessageActions({ block, opens, edit }) {
  const session = current.value?.id ?? "";
  useEffect(() => {
    learnForks(session);
  }, [session]);
  const fork = opens ? forks.value.rows.find(({ turn }) => turn === block.turn) : undefined;
  return html`<${Square} icon="copy" label=${words.copy} onClick=${() => copy(splitAttached(block.text).text)} />
    ${opens && html`<${Square} icon="edit" label=${words.edit} onClick=${edit} />`}
    <${Switch} fork=${fork} />`;
}

/** @param {{block: TextBlock}} props the last text of a turn that has ended */
export function AnswerActions({ block }) {
  const [busy, run] = useAct();
  const session = current.value;
  useEffect(() => {
    learnForks(session?.id ?? "");
  }, [session?.id]);
  if (!session) return null;
  const said = (/** @type {number} */ turn) =>
    session.view.value.blocks.filter((item) => item.kind === "user" && item.turn === turn).map((item) => /** @type {UserBlock} */ (item));
  const again = () => run(async () => {
    while (!said(block.turn).length && session.first.peek()) await session.older();
    const asked = said(block.turn);
    const images = (await Promise.all(asked.map((item) => imagesOf(session, item)))).flat();
    const text = asked.map((item) => item.text).join("\n\n");
    await branch(session, block.turn, text ? [...images, { type: "text", text }] : images);
  });
  const wasAsked = said(block.turn).length > 0 || session.first.value > 0;
  const fork = said(block.turn + 1).length ? undefined : forks.value.rows.find(({ turn }) => turn === block.turn + 1);
  return html`<${Square} icon="copy" label=${words.copy} onClick=${() => copy(block.text)} />
    ${block.turn > 0 && wasAsked && html`<${Square} icon="refresh" label=${words.regenerate} disabled=${busy} onClick=${again} />`}
    ${block.turn > 0 && html`<${Square} icon="tree" label=${words.branchHere} disabled=${busy} onClick=${() => run(() => branch(session, block.turn + 1, []))} />`}
    <${Switch} fork=${fork} />`;
}

/** Where a copy begins to be another conversation than its origin. @param {{parent: string}} props */
export function BranchLine({ parent }) {
  const { data, error } = useData(sessionPath(parent));
  return html`<div class="notice info"><${Icon} name="tree" /><div>${error ? words.branchedFromNothing : html`${words.branchedFrom} <a
    href=${sessionHref(parent)}>${data ? data.title || words.untitled : parent}</a>.`} ${words.filesStay}</div></div>`;
}

/** A message being edited; the text is kept until it is sent or cancelled. @param {{block: UserBlock, close: () => void}} props */
export function EditMessage({ block, close }) {
  const session = current.value;
  const key = `lmagent.edit.${session?.id}.${block.id}`;
  const { text: before, rest } = splitAttached(block.text);
  const [text, setText] = useState(() => stored(key, before));
  const [busy, run] = useAct();
  const field = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  useLayoutEffect(() => field.current?.focus(), []);
  useGrowing(field, text, 2);
  if (!session) return null;
  const write = (/** @type {string} */ next) => {
    setText(next);
    store(key, next === before ? "" : next);
  };
  const cancel = () => {
    store(key, "");
    close();
  };
  const empty = !text.trim() && !rest && !block.images;
  const submit = () => run(async () => {
    const images = await imagesOf(session, block);
    const words = text.trim() + rest;
    await branch(session, block.turn, words ? [...images, { type: "text", text: words }] : images);
    cancel();
  });
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    if (event.isComposing) return;
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !empty && !busy) submit();
    else return;
    event.preventDefault();
  };
  return html`<div class="edit-message card" role="group" aria-label=${words.edit}>
    <textarea class="field" ref=${field} aria-label=${words.editedText} value=${text} onKeyDown=${pressed}
      onInput=${(/** @type {any} */ event) => write(event.target.value)}></textarea>
    <p class="small quiet">${words.editAbout}</p>
    <div class="row answers"><button class="button main" disabled=${empty || busy} onClick=${submit}>${words.resend}</button>
      <button class="button" disabled=${busy} onClick=${cancel}>${common.cancel}</button></div>
  </div>`;
}
