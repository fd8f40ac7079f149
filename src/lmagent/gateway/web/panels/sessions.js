// @ts-check
// The sessions there are: found, opened, renamed and deleted; kept up by what happens in them.
import { get, post, remove, sessionPath } from "../session/api.js";
import { Icon } from "../icons.js";
import { html, useLayoutEffect, useRef, useState } from "../lib.js";
import { onEscape } from "../parts.js";
import { go, route, sessionHref } from "../router.js";
import { drawer, me, toast, tried } from "../session/state.js";
import { common, sessions as words } from "../words/conversation.js";
import { Button, Line, Pending, Search, When, standing, useData, useFeed, useSettled, useTicking } from "./kit.js";

/** @typedef {import("../session/wire.js").Row} Row */

const FIRST = 50;
/** Sessions that are kept up to date; older ones stay as they were when they were asked for. */
const MOST = 500;

/** What changes a line of the list. */
const TELLING = new Set([
  "session.created", "session.forked", "session.renamed", "session.marked", "input.received", "input.withdrawn", "turn.started", "turn.finished",
  "approval.requested", "approval.resolved", "plan.proposed", "plan.decided", "subagent.started", "subagent.finished",
]);

/** @param {import("../panels.js").PanelProps} props */
export function Panel({ session }) {
  const [search, setSearch] = useState("");
  const [limit, setLimit] = useState(FIRST);
  const [archived, setArchived] = useState(false);
  const [older, setOlder] = useState(/** @type {{about: string, rows: Row[], next: string}} */ ({ about: "", rows: [], next: "" }));
  const wanted = useSettled(search.trim(), 200);
  const shelf = archived ? "archived" : wanted ? "all" : "open";
  const about = `children=true&shelf=${shelf}${wanted ? `&search=${encodeURIComponent(wanted)}` : ""}`;
  const list = useData(`/api/sessions?limit=${limit}&${about}`, { keep: true, every: 30_000 }); // a deletion elsewhere is no event
  useFeed((event) => TELLING.has(event.type) && list.reload(), list.reload);
  useTicking();
  const newest = /** @type {Row[]} */ (list.data?.sessions ?? []);
  const listed = new Set(newest.map((row) => row.id));
  const behind = older.about === about && older.rows.length ? older : { rows: [], next: list.data?.next ?? "" };
  const rows = [...newest, ...behind.rows.filter((row) => !listed.has(row.id))];
  const more = async () => {
    if (limit < MOST) return setLimit(limit + FIRST);
    const page = await get(`/api/sessions?limit=${MOST}&${about}&after=${encodeURIComponent(behind.next)}`);
    setOlder({ about, rows: [...behind.rows, ...page.sessions], next: page.next });
  };
  const { tops, below, forks } = nested(rows);
  return html`<section class="sessions" aria-label=${words.title} onKeyDown=${arrows}>
    <${Search} label=${words.search} value=${search} change=${setSearch} placeholder=${common.search} />
    ${archived && html`<h2 class="small">${words.archived}</h2>`}
    <${Pending} given=${list} what=${words.what} />
    ${list.data && !rows.length && html`<p class="empty small">${wanted ? words.noResults(wanted) : archived ? words.nothingArchived : words.nothing}</p>`}
    <ul class="bare list">
      ${tops.map((row) => html`<${Entry} key=${row.id} row=${row} below=${below} forks=${forks} session=${session} changed=${list.reload} />`)}
    </ul>
    ${behind.next && html`<button class="button plain" onClick=${() => more().catch(list.reload)}>${words.older}</button>`}
    ${list.data && html`<button class="entry small quiet" onClick=${() => setArchived(!archived)}>
      <${Icon} name=${archived ? "list" : "archive"} />${archived ? words.backToAll : words.archived}</button>`}
  </section>`;
}

/**
 * Sub-agents below their parents, forks below their origin; a session whose origin is not in the list is at the top level.
 * A group is where its newest member would be.
 * @param {Row[]} rows
 */
function nested(rows) {
  const known = new Map(rows.map((row) => [row.id, row]));
  /** @type {Map<string, Row[]>} */
  const below = new Map();
  /** @type {Map<string, Row[]>} */
  const forks = new Map();
  /** @type {Set<Row>} */
  const tops = new Set();
  for (const row of rows) {
    const origin = originOf(row, known);
    if (row["child"] && known.has(row["parent"])) add(below, row["parent"], row);
    else if (origin !== row && !row.pinned) {
      add(forks, origin.id, row);
      tops.add(origin);
    } else tops.add(row);
  }
  return { tops: [...tops], below, forks };
}

/** @param {Map<string, Row[]>} lists @param {string} key @param {Row} row */
const add = (lists, key, row) => lists.set(key, [...(lists.get(key) ?? []), row]);

/** The first in the chain of copies, as far as it is in the list. @param {Row} row @param {Map<string, Row>} known @returns {Row} */
function originOf(row, known) {
  const met = new Set([row]);
  for (let at = row; ; ) {
    const before = at["child"] ? undefined : known.get(at["parent"]);
    if (!before || met.has(before)) return at;
    met.add(before);
    at = before;
  }
}

/** Up and down go from the search through the list, and back. @param {KeyboardEvent} event */
function arrows(event) {
  const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
  const target = /** @type {Element} */ (event.target);
  if (!step || !target.matches("a, .search")) return;
  const places = [.../** @type {NodeListOf<HTMLElement>} */ (/** @type {Element} */ (event.currentTarget).querySelectorAll("a, .search"))];
  event.preventDefault();
  places[places.indexOf(/** @type {HTMLElement} */ (target)) + step]?.focus();
}

/** @param {{row: Row, below: Map<string, Row[]>, forks: Map<string, Row[]>, session: string, changed: () => void, fork?: boolean}} props */
function Entry({ row, below, forks, session, changed, fork = false }) {
  const [open, setOpen] = useState(false);
  const [shown, setShown] = useState(false);
  const menu = useRef(/** @type {HTMLButtonElement | null} */ (null));
  const children = below.get(row.id) ?? [];
  const title = row.title || words.untitled;
  const { icon, kind, words: state } = standing(row);
  const closed = () => {
    setOpen(false);
    menu.current?.focus();
  };
  const line = (/** @type {Row} */ inner, copy = false) => html`<${Entry} key=${inner.id} row=${inner} below=${below} forks=${forks} session=${session} changed=${changed} fork=${copy} />`;
  return html`<li>
    <div class="session" data-kind=${kind}>
      <a class="entry" href=${sessionHref(row.id)} aria-current=${row.id === session ? "page" : undefined} onClick=${() => (drawer.value = "")}>
        <${Icon} name=${icon} />
        <span class="grow"><span class="title cut">${title}</span>
          <span class="about cut"><span class="words">${state}</span> · <${When} moment=${row["updated"]} />${
            [row["agent"] !== me.value?.agent && row["agent"], row.pinned && words.pinned, fork && words.fork, row.archived && words.archived].filter(Boolean).map((mark) => ` · ${mark}`)}</span></span></a>
      <button class="button plain square" ref=${menu} aria-label=${words.more(title)} aria-expanded=${open} onClick=${() => setOpen(!open)}>
        <${Icon} name="dots" /></button>
    </div>
    ${open && html`<${Actions} row=${row} closed=${closed} changed=${changed} />`}
    ${children.length > 0 && html`<button class="entry small quiet nest" aria-expanded=${shown} onClick=${() => setShown(!shown)}>
      <${Icon} name=${shown ? "down" : "right"} />${words.children(children.length)}</button>`}
    ${shown && html`<ul class="bare list children">${children.map((child) => line(child))}</ul>`}
    ${forks.has(row.id) && html`<ul class="bare list children" aria-label=${words.forksOf(title)}>${forks.get(row.id)?.map((copy) => line(copy, true))}</ul>`}
  </li>`;
}

/** @param {{row: Row, closed: () => void, changed: () => void}} props */
export function Actions({ row, closed, changed }) {
  const [doing, setDoing] = useState(/** @type {"" | "rename" | "export" | "delete"} */ (""));
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    /** @type {HTMLElement | null | undefined} */ (place.current?.querySelector("input, a, button"))?.focus();
  }, [doing]);
  const act = async (/** @type {object} */ command) => {
    if (!(await tried(() => post(sessionPath(row.id, "/commands"), command)))) return;
    closed();
    changed();
  };
  const rename = (/** @type {string} */ title) => (title === row.title ? closed() : act({ type: "rename", title }));
  const mark = (/** @type {{pinned?: boolean, archived?: boolean}} */ marks) => act({ type: "mark", ...marks });
  const discard = async () => {
    if (!(await tried(() => remove(sessionPath(row.id))))) return;
    toast(words.deleted(row.title || row.id));
    if (route.peek().session === row.id) go("#/");
    changed();
  };
  const exported = (/** @type {string} */ format) => sessionPath(row.id, `/export?format=${format}`);
  return html`<div class="actions" ref=${place} onKeyDown=${onEscape(closed)}>
    ${doing === "rename" && html`<${Line} label=${words.newTitle} yes=${words.rename} value=${row.title} most=${200} save=${rename} />`}
    ${doing === "delete" && html`<div class="row" role="group" aria-label=${words.delete}><span class="small">${words.deleteQuestion(row.status === "running")}</span>
      <button class="button fault" onClick=${discard}>${words.delete}</button><button class="button plain" onClick=${closed}>${common.cancel}</button></div>`}
    ${doing === "export" && html`<div class="row" role="group" aria-label=${words.export}>
      ${["md", "html", "jsonl"].map((format) => html`<a key=${format} class="button plain" href=${exported(format)} download onClick=${closed}>${words.formats[/** @type {"md"} */ (format)]}</a>`)}</div>`}
    ${!doing && html`<div class="row">
      <${Button} icon="pin" label=${row.pinned ? words.unpin : words.pin} kind="plain" onClick=${() => mark({ pinned: !row.pinned })} />
      <${Button} icon="edit" label=${words.rename} kind="plain" onClick=${() => setDoing("rename")} />
      <${Button} icon="download" label=${words.export} kind="plain" onClick=${() => setDoing("export")} />
      <${Button} icon="archive" label=${row.archived ? words.unarchive : words.archive} kind="plain" onClick=${() => mark({ archived: !row.archived })} />
      <${Button} icon="trash" label=${words.delete} kind="plain fault" onClick=${() => setDoing("delete")} /></div>`}
  </div>`;
}
