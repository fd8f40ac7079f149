// @ts-check
// A text of the workspace, edited: what is typed stays in this browser until it is saved or discarded.
import { get, post, sessionPath } from "../api.js";
import { beginSession } from "../first.js";
import { wanted } from "../header.js";
import { Icon } from "../icons.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib.js";
import { me, toast } from "../state.js";
import { store, stored } from "../theme.js";
import { files as words } from "../words/files.js";
import { Failed } from "./data.js";
import { Sure } from "./kit.js";

/** @typedef {{text: string, sha256: string}} Draft */
/** @typedef {import("../api.js").ApiError} ApiError */

/** @param {string} path */
const key = (path) => `lmagent.edit.${me.peek()?.workspace ?? ""}:${path}`;

/** What was typed into a file and is not saved. @param {string} path @returns {Draft | null} */
export function draftOf(path) {
  try {
    const draft = JSON.parse(stored(key(path), "null"));
    return typeof draft?.text === "string" && typeof draft?.sha256 === "string" ? draft : null;
  } catch {
    return null;
  }
}

/** @param {{path: string, session: string, done: () => void}} props */
export function Editor({ path, session, done }) {
  const [draft, setDraft] = useState(draftOf(path));
  const [restored] = useState(draft !== null);
  const [failed, setFailed] = useState(/** @type {Error | null} */ (null));
  const [fault, setFault] = useState(/** @type {ApiError | null} */ (null));
  const [saving, setSaving] = useState(false);
  const field = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const load = async () => {
    setFailed(null);
    setFault(null);
    store(key(path), "");
    try {
      const { text, sha256 } = await get(`/api/files/edit?path=${encodeURIComponent(path)}`);
      setDraft({ text, sha256 });
    } catch (error) {
      setFailed(/** @type {Error} */ (error));
    }
  };
  useEffect(() => {
    if (!draft) load();
  }, []);
  useLayoutEffect(() => field.current?.focus(), [draft === null]);
  const write = (/** @type {string} */ text) => {
    const next = { text, sha256: draft?.sha256 ?? "" };
    setDraft(next);
    store(key(path), JSON.stringify(next));
  };
  const save = async (/** @type {{over?: string, sure?: boolean}} */ { over = draft?.sha256, sure = false } = {}) => {
    if (!draft || saving) return;
    setSaving(true);
    setFault(null);
    try {
      const id = session || (await beginSession(wanted.peek()));
      await post(sessionPath(id, "/files/text"), { path, text: field.current?.value ?? draft.text, over, sure });
      store(key(path), "");
      toast(words.saved(path));
      done();
    } catch (error) {
      setFault(/** @type {ApiError} */ (error));
    }
    setSaving(false);
  };
  const discard = () => {
    store(key(path), "");
    done();
  };
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") event.preventDefault(); // it would close the panel under the hands
    if (!(event.key === "s" && (event.ctrlKey || event.metaKey))) return;
    event.preventDefault();
    save();
  };
  if (failed) return html`<${Failed} error=${failed} what=${path} again=${load} />
    <p><button class="button" onClick=${done}>${words.back}</button></p>`;
  if (!draft) return html`<p class="empty" role="status">${words.loading}</p>`;
  return html`<div class="editor">
    ${restored && !fault && html`<p class="notice" role="status"><${Icon} name="info" /><span>${words.restored}</span></p>`}
    ${fault && html`<${Fault} fault=${fault} save=${save} reload=${load} />`}
    <textarea class="field" ref=${field} aria-label=${words.textOf(path)} spellcheck=${false} autocapitalize="off" autocomplete="off"
      value=${draft.text} onInput=${(/** @type {any} */ event) => write(event.target.value)} onKeyDown=${pressed}></textarea>
    <div class="row"><button class="button main" disabled=${saving} onClick=${() => save()}>${words.save}</button>
      ${stored(key(path), "")
        ? html`<${Sure} label=${words.discard} kind="button plain" question=${words.discardQuestion} yes=${words.discard} act=${discard} />`
        : html`<button class="button plain" onClick=${discard}>${words.back}</button>`}
      <span class="small quiet">${words.editNote}</span></div>
  </div>`;
}

/** Why it was not saved, and the ways on. @param {{fault: ApiError, save: (how: object) => void, reload: () => void}} props */
function Fault({ fault, save, reload }) {
  const clash = fault.code === "changed" || fault.code === "gone";
  return html`<div class="notice warning" role="alert"><${Icon} name="warning" /><div class="grow">${fault.message}
    <div class="small quiet">${clash ? words.clashFix : fault.code === "confirm" ? "" : fault.fix}</div>
    <div class="row">
      ${clash && html`<button class="button fault" onClick=${() => save({ over: "any" })}>${words.overwrite}</button>`}
      ${fault.code === "changed" && html`<${Sure} label=${words.reload} question=${words.reloadQuestion} yes=${words.reload} act=${reload} />`}
      ${fault.code === "confirm" && html`<button class="button fault" onClick=${() => save({ sure: true })}>${words.saveAnyway}</button>`}
    </div></div></div>`;
}
