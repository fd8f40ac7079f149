// @ts-check
// One file: text with its lines numbered, edited, or as a preview; a picture; or why it is neither.
import { get, post, rawOf, sessionPath } from "../session/api.js";
import { Code } from "../text/code.js";
import { wanted } from "../header.js";
import { Icon } from "../icons.js";
import { drawn, html, useEffect, useLayoutEffect, useRef, useState } from "../lib.js";
import { Markdown } from "../text/markdown.js";
import { copy, Square } from "../parts.js";
import { go, sessionHref } from "../router.js";
import { beginSession } from "../session/session.js";
import { me, store, storedValue, toast } from "../session/state.js";
import { visible } from "../session/visible.js";
import { files as words } from "../words/files.js";
import { Button, Choice, Failed, Sure, Table, size } from "./kit.js";
import { mentioned } from "./sending.js";

/** Endings that the highlighter does not know; empty for files that are not coloured. */
const LANGUAGES = new Map([["pyi", "python"], ["cfg", "ini"], ["jsonl", "json"], ["m", "objectivec"], ["txt", ""], ["log", ""], ["csv", ""], ["tsv", ""]]);

/** @param {string} path */
function languageOf(path) {
  const ending = path.split(/[/.]/).at(-1)?.toLowerCase() ?? "";
  return LANGUAGES.get(ending) ?? ending;
}

/** @typedef {{text: string, next: number, size: number, more: boolean, kind: "text" | "image" | "binary"}} Shown */

/** @param {{path: string, session: string, back: () => void}} props */
export function Viewer({ path, session, back }) {
  const [shown, setShown] = useState(/** @type {Shown | null} */ (null));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const [asking, setAsking] = useState(false);
  const [editing, setEditing] = useState(draftOf(path) !== null);
  const load = async (/** @type {Shown | null} */ before) => {
    setAsking(true);
    setError(null);
    try {
      const piece = await get(`/api/files/text?path=${encodeURIComponent(path)}&offset=${before?.next ?? 0}`);
      setShown({ ...piece, text: (before?.text ?? "") + piece.text });
    } catch (caught) {
      setError(/** @type {Error} */ (caught));
    }
    setAsking(false);
  };
  useEffect(() => {
    load(null);
  }, [path]);
  const done = () => {
    setEditing(false);
    load(null);
  };
  return html`<div class="viewer">
    <div class="row"><${Button} icon="folder" label=${words.all} kind="plain" onClick=${back} /><span class="grow"></span>
      ${shown?.kind === "text" && !editing && html`<${Button} icon="edit" label=${words.edit} kind="plain" onClick=${() => setEditing(true)} />`}
      <button class="button plain" aria-label=${words.mentionLabel} onClick=${() => mention(path, session)}>${words.mention}</button>
      <button class="button plain" onClick=${() => copy(path, words.copied(path))}>${words.copyPath}</button>
      <a class="button plain square" href=${rawOf(path)} download=${path.split("/").at(-1)} aria-label=${words.download} title=${words.download}><${Icon} name="download" /></a>
      ${!editing && html`<${Square} icon="refresh" label=${words.reloadFile} onClick=${() => load(null)} />`}</div>
    <h3 class="path wrap">${visible(path)} ${shown && html`<span class="small quiet">${size(shown.size)}</span>`}</h3>
    ${editing ? html`<${Editor} path=${path} session=${session} done=${done} />` : html`
      ${error && html`<${Failed} error=${error} what=${path} again=${() => load(null)} />`}
      ${!shown && !error && html`<p class="empty" role="status">${words.loading}</p>`}
      ${shown && html`<${Content} path=${path} shown=${shown} />`}
      ${shown?.more && html`<div class="row"><button class="button" disabled=${asking} onClick=${() => load(shown)}>${words.more}</button>
        <span class="small quiet">${words.shownOf(size(shown.next), size(shown.size))}</span></div>`}`}
  </div>`;
}

/** @param {{path: string, shown: Shown}} props */
function Content({ path, shown }) {
  const [view, setView] = useState("text");
  if (shown.kind === "image") return html`<${Picture} key=${shown} src=${rawOf(path)} path=${path} />`;
  if (shown.kind === "binary") return html`<p class="notice"><${Icon} name="file" />
    <span>${words.noText(size(shown.size))} <a href=${rawOf(path)} download=${path.split("/").at(-1)}>${words.download}</a></span></p>`;
  const options = [{ value: "text", label: words.asText }, { value: "preview", label: words.asPreview }];
  return html`${previewOf(path) && html`<${Choice} label=${words.viewAs} options=${options} value=${view} choose=${setView} />`}
    ${view === "preview" ? html`<${Preview} path=${path} text=${shown.text} />` : html`<${Text} text=${shown.text} language=${languageOf(path)} />`}`;
}

/** @param {{text: string, language: string}} props */
function Text({ text, language }) {
  if (!text) return html`<p class="empty">${words.emptyFile}</p>`;
  const count = text.replace(/\n$/, "").split("\n").length;
  const numbers = Array.from({ length: count }, (_, index) => index + 1).join("\n");
  return html`<div class="lines"><pre class="numbers" aria-hidden="true">${numbers}</pre><${Code} code=${text} language=${language} /></div>`;
}

/** @param {{src: string, path: string}} props */
function Picture({ src, path }) {
  const [broken, setBroken] = useState(false);
  if (broken) return html`<p class="notice warning"><${Icon} name="warning" />
    <span>${words.brokenImage} <a href=${src} download>${words.download}</a></span></p>`;
  return html`<img class="picture" src=${src} alt=${path} onError=${() => setBroken(true)} />`;
}

/** Put the file into the message. @param {string} path @param {string} session */
function mention(path, session) {
  const field = /** @type {HTMLTextAreaElement | null} */ (document.getElementById("message"));
  if (!field) return;
  const gap = field.value && !/\s$/.test(field.value) ? " " : "";
  field.setRangeText(`${gap}${mentioned(path)} `, field.value.length, field.value.length, "end");
  field.dispatchEvent(new Event("input", { bubbles: true }));
  if (matchMedia("(max-width: 1100px)").matches) go(sessionHref(session));
  else toast(words.isMentioned(path));
  drawn(() => field.focus());
}

const ROWS = 1000;
const COLUMNS = 100;

/** The kind of preview that a file has; empty for none. @param {string} path */
function previewOf(path) {
  const ending = /\.([^./]+)$/.exec(path.toLowerCase())?.[1] ?? "";
  const kinds = { md: "markdown", markdown: "markdown", csv: "table", tsv: "table", html: "page", htm: "page" };
  return kinds[/** @type {keyof typeof kinds} */ (ending)] ?? "";
}

/** @param {{path: string, text: string}} props */
export function Preview({ path, text }) {
  const kind = previewOf(path);
  if (kind === "markdown") return html`<div class="card page-of"><${Markdown} text=${text} /></div>`;
  if (kind === "table") return html`<${Grid} text=${text} separator=${separatorOf(path, text)} />`;
  return html`<iframe class="page-of" title=${words.pageOf(path)} sandbox="" src=${`/api/files/page?path=${encodeURIComponent(path)}`}></iframe>
    <p class="small quiet">${words.pageNote}</p>`;
}

/** @param {string} path @param {string} text */
function separatorOf(path, text) {
  if (path.toLowerCase().endsWith(".tsv")) return "\t";
  const head = text.split("\n", 1)[0] ?? "";
  return [";", "\t"].find((sign) => head.split(sign).length > head.split(",").length) ?? ",";
}

/**
 * The rows of a table as RFC 4180 has them, up to so many.
 * @param {string} text @param {string} separator @param {number} most
 */
export function rowsOf(text, separator, most) {
  /** @type {string[][]} */
  const rows = [];
  /** @type {string[]} */
  let row = [];
  let cell = "";
  let quoted = false;
  for (let at = 0; at < text.length && rows.length < most; at++) {
    const sign = text[at];
    if (quoted) {
      if (sign !== '"') cell += sign;
      else if (text[at + 1] === '"') cell += text[++at];
      else quoted = false;
    } else if (sign === '"' && !cell) quoted = true;
    else if (sign === separator) cell = (row.push(cell), "");
    else if (sign === "\n") {
      row.push(cell.replace(/\r$/, ""));
      rows.push(row);
      row = [];
      cell = "";
    } else cell += sign;
  }
  if (rows.length < most && (cell || row.length)) rows.push([...row, cell]);
  return rows;
}

/** @param {{text: string, separator: string}} props */
function Grid({ text, separator }) {
  const [head = [], ...rows] = rowsOf(text, separator, ROWS + 2);
  const cells = (/** @type {string[]} */ row, /** @type {"th" | "td"} */ tag) => row.slice(0, COLUMNS).map((cell) => html`<${tag}>${visible(cell)}</>`);
  return html`<${Table} label=${words.table}>
      <thead><tr>${cells(head, "th")}</tr></thead><tbody>${rows.slice(0, ROWS).map((row) => html`<tr>${cells(row, "td")}</tr>`)}</tbody></>
    ${(rows.length > ROWS || head.length > COLUMNS) && html`<p class="small quiet">${words.tableCut(ROWS, COLUMNS)}</p>`}`;
}

/** @typedef {{text: string, sha256: string}} Draft */
/** @typedef {import("../session/api.js").ApiError} ApiError */

/** @param {string} path */
const key = (path) => `lmagent.edit.${me.peek()?.workspace ?? ""}:${path}`;

/** Text typed into a file and not saved. @param {string} path @returns {Draft | null} */
function draftOf(path) {
  const draft = storedValue(key(path));
  return typeof draft?.text === "string" && typeof draft?.sha256 === "string" ? draft : null;
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
      ${storedValue(key(path))
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
