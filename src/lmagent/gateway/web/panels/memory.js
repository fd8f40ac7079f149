// @ts-check
// The memory: searched, listed, explained and changed.
import { post, remove } from "../session/api.js";
import { drawn, html, useState } from "../lib.js";
import { sessionHref } from "../router.js";
import { toast, tried } from "../session/state.js";
import { memory as words } from "../words/knowledge.js";
import { Button, Line, Nothing, Pending, Search, Section, When, useData, useFeed, useSettled, useTicking } from "./kit.js";

/** @typedef {{id: string, text: string, kind: string, by: string, at: number, pinned: boolean, proposed: boolean, replaced: string,
 *   scope: string, file: string}} Memory */
/** @typedef {{what: string, at: number, removed: string[], added: string[]}} Change */
/** @typedef {{memories: Memory[], refused: {at: number, text: string, reason: string}[], problems: string[], last: Change | null}} Listed */
/** @typedef {{id: string, text: string, at: number, session: string, speaker: string, memory: Memory | null}} Hit */

const path = (/** @type {string} */ id) => `/api/memory/entries/${encodeURIComponent(id)}`;

export function Panel() {
  const [typed, setTyped] = useState("");
  const [reflecting, setReflecting] = useState(false);
  const query = useSettled(typed.trim(), 300);
  const given = useData("/api/memory");
  const found = useData(query && `/api/memory/search?limit=20&q=${encodeURIComponent(query)}`, { keep: true });
  const reload = () => {
    given.reload();
    found.reload();
  };
  useFeed((event) => event.type === "turn.finished" && reload(), reload);
  useTicking();
  const { memories, refused, problems, last } = /** @type {Listed} */ (given.data ?? { memories: [], refused: [], problems: [], last: null });
  const act = async (/** @type {() => Promise<unknown>} */ change) => {
    const done = await tried(change);
    reload();
    return done;
  };
  const reflect = async () => {
    setReflecting(true);
    await act(async () => {
      const { sessions, stored, pinned, failed } = await post("/api/memory/reflect");
      if (failed.length) throw new Error(failed[0]);
      toast(words.reflected(sessions, stored.length + pinned.length));
    });
    setReflecting(false);
  };
  const add = (/** @type {string} */ text) => act(() => post("/api/memory", { text }));
  const cards = (/** @type {Memory[]} */ rows) => html`<ul class="bare cards">${rows.map((row) => html`<${Card} key=${row.id} row=${row} act=${act} />`)}</ul>`;
  const proposed = memories.filter((row) => row.proposed);
  const others = memories.filter((row) => !row.proposed);
  const hits = /** @type {Hit[]} */ (found.data?.hits ?? []);
  return html`<div class="row"><p class="quiet grow lead">${words.lead}</p>
      <${Button} icon="refresh" label=${
        reflecting ? words.reflecting : words.reflect} title=${words.reflectTitle} disabled=${reflecting} onClick=${reflect} /></div>
    <${Search} label=${words.search} value=${typed} change=${setTyped} />
    <${Pending} given=${given} what=${words.what} />
    ${problems.map((problem) => html`<p key=${problem} class="notice warning">${problem}</p>`)}
    ${query ? html`<${Pending} given=${found} what=${words.whatFound} />
      ${found.data && !hits.length && html`<p class="empty" role="status">${words.noResults(query)}</p>`}
      <ul class="bare cards">${hits.map((hit) => (hit.memory ? html`<${Card} key=${hit.id} row=${hit.memory} act=${act} />`
        : html`<li key=${hit.id} class="card job"><p class="wrap clamp">${hit.text}</p>
          <p class="small quiet">${words.speaker[hit.speaker] ?? hit.speaker} · <${When} moment=${hit.at} /> · <${Link} session=${hit.session} /></p></li>`))}</ul>`
    : given.data && html`
      ${!memories.length && html`<${Nothing} icon="pin" title=${words.none}>${words.noneAbout}</>`}
      <div class="section"><${Line} label=${words.addLabel} yes=${words.add} save=${add} />
        ${last && html`<div class="row small quiet"><span class="grow cut" role="status">${changed(last)}: ${last.added[0] ?? last.removed[0]}</span>
          <${Button} icon="undo" label=${words.undo} data-undo onClick=${() => act(() => post("/api/memory/undo"))} /></div>`}</div>
      ${proposed.length > 0 && html`<${Section} title=${words.proposed}>${cards(proposed)}</>`}
      ${others.length > 0 && html`<${Section} title=${words.all}>${cards(others)}</>`}
      ${refused.length > 0 && html`<${Section} title=${words.refused}><ul class="small">${refused.map((one) => html`<li key=${one.at} class="wrap">${
        one.text || words.hidden}: ${one.reason} · <${When} moment=${one.at} /></li>`)}</ul></>`}`}`;
}

/** @param {Change} change */
const changed = ({ what }) => words.changed[what] ?? what;

/** @param {{session: string}} props */
const Link = ({ session }) => html`<a class="wrap" href=${sessionHref(session)}>${session}</a>`;

/** @param {{row: Memory, act: (change: () => Promise<unknown>) => Promise<boolean>}} props */
function Card({ row, act }) {
  const [open, setOpen] = useState(/** @type {"" | "why" | "edit"} */ (""));
  const button = (/** @type {string} */ label, /** @type {import("../icons.js").IconName} */ icon, /** @type {() => unknown} */ does, kind = "") =>
    html`<${Button} icon=${icon} label=${label} of=${row.text} kind=${kind} onClick=${does} />`;
  const toggle = (/** @type {"why" | "edit"} */ what) => () => setOpen(open === what ? "" : what);
  const pin = () => act(() => post(path(row.id), { pinned: !row.pinned }));
  const forget = async () => {
    if (!(await act(() => remove(path(row.id))))) return;
    toast(words.forgotten);
    drawn(() => /** @type {HTMLElement | null} */ (document.querySelector("[data-undo]"))?.focus({ preventScroll: true }));
  };
  return html`<li class="card job" aria-label=${row.text}>
    ${open === "edit" ? html`<${Line} label=${words.edit} yes=${words.save} value=${row.text} close=${toggle("edit")}
      save=${(/** @type {string} */ text) => act(() => post(path(row.id), { text }))} />` : html`<p class="wrap">${row.text}</p>`}
    <p class="row small quiet">${row.pinned && html`<span class="chip done">${words.pinned}</span>`}${row.replaced && html`<span class="chip">${words.replaced}</span>`}
      ${row.scope === "user" && html`<span class="chip">${words.everywhere}</span>`}
      <span>${words.by[row.by]}${row.at > 0 && html` · <${When} moment=${row.at} />`}</span></p>
    <div class="row">${row.proposed && button(words.accept, "check", pin, "main")}
      ${button(words.why, "info", toggle("why"))}
      ${!row.replaced && button(words.edit, "edit", toggle("edit"))}
      ${!row.proposed && !row.replaced && button(row.pinned ? words.unpin : words.pin, "pin", pin)}
      ${button(words.forget, "trash", forget, "plain")}</div>
    ${open === "why" && html`<${Why} id=${row.id} />`}</li>`;
}

/** Where a memory is from. @param {{id: string}} props */
function Why({ id }) {
  const given = useData(`${path(id)}/why`);
  const why = /** @type {{path: string, changes: Change[], evidence: {session: string, seq: number, text: string}[]} | null} */ (given.data);
  return html`<${Pending} given=${given} what=${words.whatWhy} />
    ${why && html`<dl class="facts"><dt>${words.file}</dt><dd><code>${why.path}</code></dd>
      <dt>${words.changes}</dt><dd>${why.changes.map((one) => html`<div key=${one.at}>${changed(one)} · <${When} moment=${one.at} /></div>`)}</dd>
      ${why.evidence.map((one) => html`<dt>${words.evidence}</dt><dd><${Link} session=${one.session} /><p class="notice">${one.text || words.gone}</p></dd>`)}</dl>
      ${!why.evidence.length && html`<p class="small quiet">${words.noEvidence}</p>`}`}`;
}
