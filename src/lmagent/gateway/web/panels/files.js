// @ts-check
// The files of the workspace: a tree, names that fit some letters, the file that was chosen, and files that are sent here.
import { get } from "../api.js";
import { Icon } from "../icons.js";
import { html, signal, useRef, useState } from "../lib.js";
import { go, sessionHref } from "../router.js";
import { complain } from "../state.js";
import { visible } from "../visible.js";
import { files as words } from "../words/files.js";
import { Failed, Pending, Search, useData, useSettled } from "./data.js";
import { useFeed } from "./feed.js";
import { Nothing } from "./kit.js";
import { Questions, sendFiles, sending } from "./sending.js";
import { folders, here, refresh, Tree } from "./tree.js";
import { Viewer } from "./viewer.js";

/** @param {import("../panels.js").PanelProps} props `rest` is the path of the file that is shown */
export function Panel({ session, rest }) {
  const choose = (/** @type {string} */ path) => go(sessionHref(session, "files", path));
  if (rest) return html`<${Viewer} key=${rest} path=${rest} session=${session} back=${() => choose("")} />`;
  return html`<${Browse} session=${session} choose=${choose} />`;
}

/** The folder over which files are dragged; null for none. */
const over = signal(/** @type {string | null} */ (null));

/** The folder of the line under the pointer. @param {DragEvent} event */
function folderAt(event) {
  const line = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("[data-path]"));
  const path = line?.dataset["path"] ?? "";
  return line?.hasAttribute("aria-expanded") ? path : path.split("/").slice(0, -1).join("/");
}

/** @param {{session: string, choose: (path: string) => void}} props */
function Browse({ session, choose }) {
  const [search, setSearch] = useState("");
  useFeed((event) => (event.type === "turn.finished" || event.type === "files.changed") && refresh(), () => {});
  const root = folders.value.get("");
  const dragged = (/** @type {DragEvent} */ event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    over.value = folderAt(event);
  };
  const dropped = (/** @type {DragEvent} */ event) => {
    over.value = null;
    if (!event.dataTransfer?.files.length) return;
    event.preventDefault();
    event.stopPropagation();
    const items = [...event.dataTransfer.items].filter((item) => item.kind === "file");
    if (items.some((item) => item.webkitGetAsEntry?.()?.isDirectory)) return complain({ message: words.noFolders, fix: words.noFoldersFix });
    sendFiles(session, folderAt(event), [...event.dataTransfer.files]);
  };
  return html`<div class=${over.value === null ? "files" : "files dropping"} onDragOver=${dragged} onDragLeave=${() => (over.value = null)} onDrop=${dropped}>
    <div class="row"><div class="grow"><${Search} label=${words.find} value=${search} change=${setSearch} /></div>
      <${Upload} session=${session} />
      <button class="button plain square" aria-label=${words.downloadFolder(here.value)} title=${words.downloadFolder(here.value)} onClick=${() => download(here.value)}>
        <${Icon} name="download" /></button>
      <button class="button plain square" aria-label=${words.refresh} title=${words.refresh} onClick=${refresh}>
        <${Icon} name="refresh" /></button></div>
    <${Questions} />
    <p class="small quiet" role="status">${sending.value.length > 0 ? words.sending(sending.value) : over.value !== null ? words.dropHere(over.value) : ""}</p>
    ${search.trim() ? html`<${Found} text=${search.trim()} choose=${choose} />` : html`
      ${!root && html`<p class="empty" role="status">${words.loadingAll}</p>`}
      ${root?.error && html`<${Failed} error=${new Error(root.error)} what=${words.theFiles} again=${refresh} />`}
      ${root && !root.error && !root.entries.length && html`<${Nothing} icon="folder" title=${words.nothing}>${words.nothingHint}</>`}
      <${Tree} choose=${choose} />
      ${root?.more && html`<p class="small quiet">${words.moreNames}</p>`}`}
  </div>`;
}

/** @param {{session: string}} props */
function Upload({ session }) {
  const chooser = useRef(/** @type {HTMLInputElement | null} */ (null));
  const label = words.uploadTo(here.value);
  return html`<input type="file" multiple hidden ref=${chooser} aria-label=${label} onChange=${(/** @type {any} */ event) => {
      sendFiles(session, here.peek(), [...event.target.files]);
      event.target.value = "";
    }} />
    <button class="button plain square" aria-label=${label} title=${label} onClick=${() => chooser.current?.click()}><${Icon} name="upload" /></button>`;
}

/** Download a folder; asked for first, since a browser shows no reason for a download that is refused. @param {string} path */
async function download(path) {
  const query = `path=${encodeURIComponent(path)}`;
  try {
    await get(`/api/files/zip/check?${query}`);
  } catch (error) {
    complain(error);
    return;
  }
  const link = document.createElement("a");
  link.href = `/api/files/zip?${query}`;
  link.download = "";
  link.click();
}

/** @param {{text: string, choose: (path: string) => void}} props */
function Found({ text, choose }) {
  const settled = useSettled(text, 150);
  const found = useData(`/api/find?q=${encodeURIComponent(settled)}&limit=100`);
  const paths = /** @type {string[]} */ (found.data?.paths ?? []);
  return html`<${Pending} given=${found} what=${words.results} />
    ${found.data && !paths.length && html`<p class="empty">${words.noResults(settled)}</p>`}
    <ul class="bare list">${paths.map((path) => html`<li key=${path}><button class="entry" onClick=${() => choose(path)}>
      <${Icon} name="file" /><span class="wrap">${visible(path)}</span></button></li>`)}</ul>`;
}
