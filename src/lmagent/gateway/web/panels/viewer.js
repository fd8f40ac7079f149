// @ts-check
// One file: text with its lines numbered, a picture, or why it is neither.
import { get } from "../api.js";
import { Code } from "../code.js";
import { Icon } from "../icons.js";
import { drawn, html, useEffect, useState } from "../lib.js";
import { go, sessionHref } from "../router.js";
import { toast } from "../state.js";
import { visible } from "../visible.js";
import { Failed } from "./data.js";
import { size } from "./kit.js";

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
  const raw = `/api/files/raw?path=${encodeURIComponent(path)}`;
  return html`<div class="viewer">
    <div class="row"><button class="button plain" onClick=${back}><${Icon} name="folder" />All files</button><span class="grow"></span>
      <button class="button plain" aria-label="Mention in message" onClick=${() => mention(path, session)}>Mention</button>
      <button class="button plain" onClick=${() => copy(path)}>Copy path</button>
      <button class="button plain square" aria-label="Read it again" title="Read it again" onClick=${() => load(null)}><${Icon} name="refresh" /></button></div>
    <h3 class="path wrap">${visible(path)} ${shown && html`<span class="small quiet">${size(shown.size)}</span>`}</h3>
    ${error && html`<${Failed} error=${error} what=${path} again=${() => load(null)} />`}
    ${!shown && !error && html`<p class="empty" role="status">Loading …</p>`}
    ${shown?.kind === "image" && html`<${Picture} key=${shown} src=${raw} path=${path} />`}
    ${shown?.kind === "binary" && html`<p class="notice"><${Icon} name="file" />
      <span>This is no text: ${size(shown.size)}. <a href=${raw} download>Save it</a> to look at it elsewhere.</span></p>`}
    ${shown?.kind === "text" && html`<${Text} text=${shown.text} language=${languageOf(path)} />`}
    ${shown?.more && html`<div class="row"><button class="button" disabled=${asking} onClick=${() => load(shown)}>Show more</button>
      <span class="small quiet">${size(shown.next)} of ${size(shown.size)} are shown</span></div>`}
  </div>`;
}

/** @param {{text: string, language: string}} props */
function Text({ text, language }) {
  if (!text) return html`<p class="empty">The file is empty.</p>`;
  const count = text.replace(/\n$/, "").split("\n").length;
  const numbers = Array.from({ length: count }, (_, index) => index + 1).join("\n");
  return html`<div class="lines"><pre class="numbers" aria-hidden="true">${numbers}</pre><${Code} code=${text} language=${language} /></div>`;
}

/** @param {{src: string, path: string}} props */
function Picture({ src, path }) {
  const [broken, setBroken] = useState(false);
  if (broken) return html`<p class="notice warning"><${Icon} name="warning" />
    <span>The browser cannot show this picture. <a href=${src} download>Save it</a></span></p>`;
  return html`<img class="picture" src=${src} alt=${path} onError=${() => setBroken(true)} />`;
}

/** Put the file into the message. @param {string} path @param {string} session */
function mention(path, session) {
  const field = /** @type {HTMLTextAreaElement | null} */ (document.getElementById("message"));
  if (!field) return;
  const gap = field.value && !/\s$/.test(field.value) ? " " : "";
  field.setRangeText(`${gap}@${path} `, field.value.length, field.value.length, "end");
  field.dispatchEvent(new Event("input", { bubbles: true }));
  if (matchMedia("(max-width: 1100px)").matches) go(sessionHref(session));
  else toast(`${path} stands in the message`);
  drawn(() => field.focus());
}

/** @param {string} path */
async function copy(path) {
  try {
    await navigator.clipboard.writeText(path);
    toast(`copied: ${path}`);
  } catch {
    toast("the browser does not let this page copy", "error", "over plain HTTP it allows that on this machine only");
  }
}
