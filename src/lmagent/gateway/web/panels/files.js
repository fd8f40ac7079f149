// @ts-check
// The files of the workspace: a tree, names that fit some letters, and the file that was chosen.
import { Icon } from "../icons.js";
import { html, useState } from "../lib.js";
import { go, sessionHref } from "../router.js";
import { visible } from "../visible.js";
import { Failed, Pending, Search, useData, useSettled } from "./data.js";
import { useFeed } from "./feed.js";
import { Nothing } from "./kit.js";
import { folders, refresh, Tree } from "./tree.js";
import { Viewer } from "./viewer.js";

/** @param {import("../panels.js").PanelProps} props `rest` is the path of the file that is shown */
export function Panel({ session, rest }) {
  const choose = (/** @type {string} */ path) => go(sessionHref(session, "files", path));
  if (rest) return html`<${Viewer} key=${rest} path=${rest} session=${session} back=${() => choose("")} />`;
  return html`<${Browse} choose=${choose} />`;
}

/** @param {{choose: (path: string) => void}} props */
function Browse({ choose }) {
  const [search, setSearch] = useState("");
  useFeed((event) => event.type === "turn.finished" && refresh(), () => {});
  const root = folders.value.get("");
  return html`<div class="files">
    <div class="row"><div class="grow"><${Search} label="Find files by name" value=${search} change=${setSearch} /></div>
      <button class="button plain square" aria-label="Read the folders again" title="Read the folders again" onClick=${refresh}>
        <${Icon} name="refresh" /></button></div>
    ${search.trim() ? html`<${Found} words=${search.trim()} choose=${choose} />` : html`
      ${!root && html`<p class="empty" role="status">Loading the files …</p>`}
      ${root?.error && html`<${Failed} error=${new Error(root.error)} what="the files" again=${refresh} />`}
      ${root && !root.error && !root.entries.length && html`<${Nothing} icon="folder" title="The folder is empty">Ask the agent to make something in it.</>`}
      <${Tree} choose=${choose} />
      ${root?.more && html`<p class="small quiet">There are more names than are listed here: the search finds the others.</p>`}`}
  </div>`;
}

/** @param {{words: string, choose: (path: string) => void}} props */
function Found({ words, choose }) {
  const settled = useSettled(words, 150);
  const found = useData(`/api/find?q=${encodeURIComponent(settled)}&limit=100`);
  const paths = /** @type {string[]} */ (found.data?.paths ?? []);
  return html`<${Pending} given=${found} what="what fits" />
    ${found.data && !paths.length && html`<p class="empty">No file's name has “${settled}”.</p>`}
    <ul class="bare list">${paths.map((path) => html`<li key=${path}><button class="entry" onClick=${() => choose(path)}>
      <${Icon} name="file" /><span class="wrap">${visible(path)}</span></button></li>`)}</ul>`;
}
