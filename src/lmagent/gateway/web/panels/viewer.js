// @ts-check
// One file: text with its lines numbered, edited, or shown as what it means; a picture; or why it is neither.
import { get } from "../api.js";
import { Code } from "../code.js";
import { Icon } from "../icons.js";
import { late } from "../late.js";
import { drawn, html, useEffect, useState } from "../lib.js";
import { go, sessionHref } from "../router.js";
import { toast } from "../state.js";
import { visible } from "../visible.js";
import { files as words } from "../words/files.js";
import { Failed } from "./data.js";
import { draftOf, Editor } from "./editor.js";
import { Choice, size } from "./kit.js";
import { previewOf } from "./preview.js";
import { mentioned } from "./sending.js";

const Preview = late(() => import("./preview.js").then((module) => module.Preview));

const LANGUAGES = new Map(Object.entries({
  py: "python", pyi: "python", js: "javascript", mjs: "javascript", cjs: "javascript", jsx: "javascript", ts: "typescript",
  tsx: "typescript", sh: "bash", bash: "bash", zsh: "bash", c: "c", h: "c", cc: "cpp", cpp: "cpp", hpp: "cpp", cs: "csharp",
  css: "css", scss: "scss", less: "less", diff: "diff", patch: "diff", go: "go", graphql: "graphql", html: "xml", xml: "xml",
  svg: "xml", ini: "ini", toml: "ini", cfg: "ini", java: "java", json: "json", jsonl: "json", kt: "kotlin", lua: "lua", md: "markdown",
  m: "objectivec", pl: "perl", php: "php", r: "r", rb: "ruby", rs: "rust", sql: "sql", swift: "swift", yaml: "yaml", yml: "yaml",
}));

/** @param {string} path */
function languageOf(path) {
  const name = path.split("/").at(-1)?.toLowerCase() ?? "";
  if (name === "makefile") return "makefile";
  return name.includes(".") ? (LANGUAGES.get(name.split(".").at(-1) ?? "") ?? "") : "";
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
    <div class="row"><button class="button plain" onClick=${back}><${Icon} name="folder" />${words.all}</button><span class="grow"></span>
      ${shown?.kind === "text" && !editing && html`<button class="button plain" onClick=${() => setEditing(true)}><${Icon} name="edit" />${words.edit}</button>`}
      <button class="button plain" aria-label=${words.mentionLabel} onClick=${() => mention(path, session)}>${words.mention}</button>
      <button class="button plain" onClick=${() => copy(path)}>${words.copyPath}</button>
      <a class="button plain square" href=${rawOf(path)} download=${path.split("/").at(-1)} aria-label=${words.download} title=${words.download}><${Icon} name="download" /></a>
      ${!editing && html`<button class="button plain square" aria-label=${words.reloadFile} title=${words.reloadFile} onClick=${() => load(null)}><${Icon} name="refresh" /></button>`}</div>
    <h3 class="path wrap">${visible(path)} ${shown && html`<span class="small quiet">${size(shown.size)}</span>`}</h3>
    ${editing ? html`<${Editor} path=${path} session=${session} done=${done} />` : html`
      ${error && html`<${Failed} error=${error} what=${path} again=${() => load(null)} />`}
      ${!shown && !error && html`<p class="empty" role="status">${words.loading}</p>`}
      ${shown && html`<${Content} path=${path} shown=${shown} />`}
      ${shown?.more && html`<div class="row"><button class="button" disabled=${asking} onClick=${() => load(shown)}>${words.more}</button>
        <span class="small quiet">${words.shownOf(size(shown.next), size(shown.size))}</span></div>`}`}
  </div>`;
}

/** @param {string} path */
const rawOf = (path) => `/api/files/raw?path=${encodeURIComponent(path)}`;

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

/** @param {string} path */
async function copy(path) {
  try {
    await navigator.clipboard.writeText(path);
    toast(words.copied(path));
  } catch {
    toast(words.noCopy, "error", words.noCopyFix);
  }
}
