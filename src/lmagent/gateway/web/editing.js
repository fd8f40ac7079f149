// @ts-check
// The box in which a message of the conversation is written anew.
import { branch, imagesOf, useBusy } from "./actions.js";
import { splitAttached } from "./attached.js";
import { html, useLayoutEffect, useRef, useState } from "./lib.js";
import { current } from "./session.js";
import { store, stored } from "./theme.js";
import { common, messages as words } from "./words/conversation.js";

/** @typedef {import("./wire.js").UserBlock} UserBlock */

/** A message to be sent in other words; what is typed is kept until it is sent or cancelled. @param {{block: UserBlock, close: () => void}} props */
export function EditMessage({ block, close }) {
  const session = current.value;
  const key = `lmagent.edit.${session?.id}.${block.id}`;
  const { text: before, rest } = splitAttached(block.text);
  const [text, setText] = useState(() => stored(key, before));
  const [busy, run] = useBusy();
  const field = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  useLayoutEffect(() => field.current?.focus(), []);
  useLayoutEffect(() => {
    const element = field.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${element.scrollHeight + 2}px`;
  }, [text]);
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
