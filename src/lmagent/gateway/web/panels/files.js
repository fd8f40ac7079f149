// @ts-check
// The files of the workspace: a tree, names that fit some letters, the file that was chosen, and files that are sent here.
import { get } from "../session/api.js";
import { Icon } from "../icons.js";
import { computed, html, signal, useEffect, useRef, useState } from "../lib.js";
import { Square } from "../parts.js";
import { go, sessionHref } from "../router.js";
import { complain, tried } from "../session/state.js";
import { visible } from "../session/visible.js";
import { files as words } from "../words/files.js";
import { Failed, Nothing, Pending, Search, size, useData, useFeed, useSettled } from "./kit.js";
import { largest, Questions, sendFiles, sending, uploadCount } from "./sending.js";
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
      <${Square} icon="download" label=${words.downloadFolder(here.value)} onClick=${() => download(here.value)} />
      <${Square} icon="refresh" label=${words.refresh} onClick=${refresh} /></div>
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
    <${Square} icon="upload" label=${label} onClick=${() => chooser.current?.click()} />`;
}

/** Download a folder; asked for first, since a browser shows no reason for a download that is refused. @param {string} path */
async function download(path) {
  const query = `path=${encodeURIComponent(path)}`;
  if (!(await tried(() => get(`/api/files/zip/check?${query}`)))) return;
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

/** @typedef {{name: string, kind: "file" | "folder" | "link" | "other", size: number, modified: number}} Entry */
/** @typedef {{entries: Entry[], more: boolean, error: string}} Folder */

/** The folders that were read, by path; the workspace itself is "". A map, for a folder may be called `constructor`. */
export const folders = signal(/** @type {ReadonlyMap<string, Folder>} */ (new Map()));
/** The folders that are open. */
const opened = signal(/** @type {ReadonlySet<string>} */ (new Set()));
/** The line that the keyboard is at. */
const at = signal("");

/** The folder that the keyboard is in: of a folder's line the folder itself. */
export const here = computed(() => {
  const line = linesOf().find(({ path }) => path === at.value);
  if (!line) return "";
  return line.entry.kind === "folder" ? line.path : line.path.split("/").slice(0, -1).join("/");
});

/** @param {string} path */
async function read(path) {
  /** @type {Folder} */
  let folder;
  try {
    const { entries, more, ...rest } = await get(`/api/files?path=${encodeURIComponent(path)}`);
    folder = { entries, more, error: "" };
    largest.value = rest.largest;
  } catch (error) {
    folder = { entries: [], more: false, error: /** @type {Error} */ (error).message };
  }
  folders.value = new Map(folders.peek()).set(path, folder);
}

/** Read the open folders again; a folder that is gone, is gone from the tree as well. */
export async function refresh() {
  await read("");
  for (const path of [...opened.peek()].sort()) {
    if (linesOf().some((line) => line.path === path)) await read(path);
    else opened.value = new Set([...opened.peek()].filter((other) => other !== path));
  }
}

/** @param {string} path @param {boolean} open */
function setOpen(path, open) {
  const next = new Set(opened.peek());
  if (open) next.add(path);
  else next.delete(path);
  opened.value = next;
  if (open && !folders.peek().has(path)) read(path);
}

/**
 * @typedef {Object} Line
 * @property {string} path
 * @property {Entry} entry
 * @property {number} level
 * @property {number} place in its folder, from 1
 * @property {number} of how many
 * @property {boolean} open
 */

/** The visible lines, from top to bottom. @param {string} [path] @param {number} [level] @returns {Line[]} */
function linesOf(path = "", level = 1) {
  const entries = folders.value.get(path)?.entries ?? [];
  return entries.flatMap((entry, index) => {
    const own = path ? `${path}/${entry.name}` : entry.name;
    const open = entry.kind === "folder" && opened.value.has(own);
    return [{ path: own, entry, level, place: index + 1, of: entries.length, open }, ...(open ? linesOf(own, level + 1) : [])];
  });
}

const LETTERS_APART = 700;

/** @param {{choose: (path: string) => void}} props `choose` opens a file */
export function Tree({ choose }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const typed = useRef({ text: "", when: 0 });
  const again = uploadCount.value;
  useEffect(() => {
    refresh();
  }, [again]);
  const shown = linesOf();
  const currentOf = (/** @type {Line[]} */ lines) => lines.find((line) => line.path === at.value) ?? lines[0];
  // At once, not with the next drawing: until then the line that has the focus may be gone, and the next key with it.
  const move = (/** @type {Line | undefined} */ line) => {
    if (!line) return;
    at.value = line.path;
    const rows = /** @type {HTMLElement[]} */ ([...(place.current?.children ?? [])]);
    rows.find((row) => row.dataset["path"] === line.path)?.focus();
  };
  const take = (/** @type {Line} */ line) => {
    at.value = line.path;
    if (line.entry.kind === "folder") setOpen(line.path, !line.open);
    else if (line.entry.kind !== "other") choose(line.path);
  };
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    const lines = linesOf();
    const current = currentOf(lines);
    if (!current || event.ctrlKey || event.metaKey || event.altKey) return;
    const index = lines.indexOf(current);
    const isFolder = current.entry.kind === "folder";
    const to = { ArrowDown: lines[index + 1], ArrowUp: lines[index - 1], Home: lines[0], End: lines.at(-1) };
    if (event.key.length > 1) typed.current.text = "";
    if (event.key in to) move(to[/** @type {keyof typeof to} */ (event.key)]);
    else if (event.key === "Enter" || event.key === " ") take(current);
    else if (event.key === "ArrowRight" && isFolder && !current.open) setOpen(current.path, true);
    else if (event.key === "ArrowRight") move(lines.slice(index + 1, index + 2).find((line) => line.level > current.level));
    else if (event.key === "ArrowLeft" && current.open) setOpen(current.path, false);
    else if (event.key === "ArrowLeft") move(lines.slice(0, index).findLast((line) => line.level < current.level));
    else if (event.key.length === 1) move(byLetters(lines, index, event));
    else return;
    event.preventDefault();
  };
  /** @param {Line[]} all @param {number} index @param {KeyboardEvent} event */
  const byLetters = (all, index, event) => {
    const { text, when } = typed.current;
    typed.current = { text: (event.timeStamp - when < LETTERS_APART ? text : "") + event.key.toLowerCase(), when: event.timeStamp };
    const from = typed.current.text.length > 1 ? index : index + 1;
    return [...all.slice(from), ...all.slice(0, from)].find((line) => line.entry.name.toLowerCase().startsWith(typed.current.text));
  };
  return html`<ul class="bare tree" role="tree" aria-label=${words.tree} ref=${place} onKeyDown=${pressed}>
    ${shown.map((line) => html`<${Row} key=${line.path} line=${line} isCurrent=${line === currentOf(shown)} take=${take} />`)}
  </ul>`;
}

/** @param {{line: Line, isCurrent: boolean, take: (line: Line) => void}} props */
function Row({ line, isCurrent, take }) {
  const { entry, level, open, path } = line;
  const isFolder = entry.kind === "folder";
  const folder = open ? folders.value.get(path) : undefined;
  const note = folder?.error || (open && !folder ? "…" : folder?.more ? words.firstOnes : folder && !folder.entries.length ? words.emptyFolder : "");
  return html`<li class=${`entry level-${Math.min(level, 12)}`} role="treeitem" data-path=${path}
    aria-level=${level} aria-posinset=${line.place} aria-setsize=${line.of}
    aria-expanded=${isFolder ? open : undefined} aria-selected=${isCurrent} tabindex=${isCurrent ? 0 : -1} onClick=${() => take(line)}>
    <${Icon} name=${isFolder ? (open ? "down" : "right") : "file"} /><span class="cut grow">${visible(entry.name)}</span>
    <span class="small quiet">${note || (entry.kind === "file" ? size(entry.size) : entry.kind === "folder" ? "" : words.kinds[entry.kind])}</span></li>`;
}
