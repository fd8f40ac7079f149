// @ts-check
// The sessions there are: found, opened, renamed and deleted; kept up by what happens in them.
import { get } from "../api.js";
import { Icon } from "../icons.js";
import { late } from "../late.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { sessionHref } from "../router.js";
import { drawer } from "../state.js";
import { Pending, Search, useData, useSettled } from "./data.js";
import { useFeed } from "./feed.js";
import { useTicking, When } from "./moments.js";
import { messages } from "../words.js";
import { standing } from "./standing.js";

/** @typedef {import("../wire.js").Row} Row */

const Actions = late(() => import("./sessionmenu.js").then((module) => module.Actions));

const FIRST = 50;
/** Sessions that are kept up to date; older ones stay as they were when they were asked for. */
const MOST = 500;

/** What changes a line of the list. */
const TELLING = new Set([
  "session.created", "session.forked", "session.renamed", "input.received", "input.withdrawn", "turn.started", "turn.finished",
  "approval.requested", "approval.resolved", "plan.proposed", "plan.decided", "subagent.started", "subagent.finished",
]);

/** @param {import("../panels.js").PanelProps} props */
export function Panel({ session }) {
  const [search, setSearch] = useState("");
  const [limit, setLimit] = useState(FIRST);
  const [older, setOlder] = useState(/** @type {{words: string, rows: Row[], next: string}} */ ({ words: "", rows: [], next: "" }));
  const words = useSettled(search.trim(), 200);
  const about = `children=true${words ? `&search=${encodeURIComponent(words)}` : ""}`;
  const list = useData(`/api/sessions?limit=${limit}&${about}`, { keep: true });
  useFeed((event) => TELLING.has(event.type) && list.reload(), list.reload);
  useTicking();
  useEffect(() => {
    // What another window deletes is no event: its log is gone.
    const timer = setInterval(() => document.hidden || list.reload(), 30_000);
    return () => clearInterval(timer);
  }, []);
  const newest = /** @type {Row[]} */ (list.data?.sessions ?? []);
  const listed = new Set(newest.map((row) => row.id));
  const behind = older.words === words && older.rows.length ? older : { rows: [], next: list.data?.next ?? "" };
  const rows = [...newest, ...behind.rows.filter((row) => !listed.has(row.id))];
  const more = async () => {
    if (limit < MOST) return setLimit(limit + FIRST);
    const page = await get(`/api/sessions?limit=${MOST}&${about}&after=${encodeURIComponent(behind.next)}`);
    setOlder({ words, rows: [...behind.rows, ...page.sessions], next: page.next });
  };
  const { tops, below } = nested(rows);
  return html`<section class="sessions" aria-label="Sessions" onKeyDown=${arrows}>
    <${Search} label="Search sessions" value=${search} change=${setSearch} placeholder="Search" />
    <${Pending} given=${list} what="the sessions" />
    ${list.data && !rows.length && html`<p class="empty small">${words ? `Nothing has “${words}”.` : "No sessions yet: what you send begins one."}</p>`}
    <ul class="bare list">
      ${tops.map((row) => html`<${Line} key=${row.id} row=${row} below=${below} session=${session} changed=${list.reload} />`)}
    </ul>
    ${behind.next && html`<button class="button plain" onClick=${() => more().catch(list.reload)}>Older sessions</button>`}
  </section>`;
}

/**
 * Sub-agents below the sessions that asked them, branches below those that they left; a row whose parent is not in the
 * list is in no other one's. A family is where its newest member would be.
 * @param {Row[]} rows
 */
function nested(rows) {
  const known = new Map(rows.map((row) => [row.id, row]));
  const above = (/** @type {Row} */ row) => (row["child"] || row["branch_turn"] ? known.get(row["parent"]) : undefined);
  /** @type {Map<string, Row[]>} */
  const below = new Map();
  /** @type {Set<Row>} */
  const tops = new Set();
  for (const row of rows) {
    const line = new Set([row]);
    for (let parent = above(row); parent && !line.has(parent); parent = above(parent)) line.add(parent);
    const top = [...line].at(-1) ?? row;
    const round = above(top) !== undefined; // logs that name each other
    tops.add(round ? row : top);
    const parent = round ? undefined : above(row);
    if (parent) below.set(parent.id, [...(below.get(parent.id) ?? []), row]);
  }
  return { tops: [...tops], below };
}

/** Whether a session is somewhere below another one. @param {string} id @param {Map<string, Row[]>} below @param {string} session @returns {boolean} */
function holds(id, below, session) {
  return (below.get(id) ?? []).some((row) => row.id === session || holds(row.id, below, session));
}

/** How many are below a row, by what they are. @param {Row[]} children */
function counted(children) {
  const agents = children.filter((row) => row["child"]).length;
  const branches = children.length - agents;
  return [agents && `${agents} sub-agent${agents > 1 ? "s" : ""}`, branches && messages.branchCount(branches)].filter(Boolean).join(" · ");
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

/** @param {{row: Row, below: Map<string, Row[]>, session: string, changed: () => void}} props */
function Line({ row, below, session, changed }) {
  const [open, setOpen] = useState(false);
  const [chosen, setShown] = useState(/** @type {boolean | null} */ (null));
  const shown = chosen ?? holds(row.id, below, session);
  const menu = useRef(/** @type {HTMLButtonElement | null} */ (null));
  const children = below.get(row.id) ?? [];
  const title = row.title || "Untitled";
  const { icon, kind, words } = standing(row);
  const closed = () => {
    setOpen(false);
    menu.current?.focus();
  };
  return html`<li>
    <div class="session" data-kind=${kind}>
      <a class="entry" href=${sessionHref(row.id)} aria-current=${row.id === session ? "page" : undefined} onClick=${() => (drawer.value = "")}>
        <${Icon} name=${icon} />
        <span class="grow"><span class="title cut">${title}</span>
          <span class="about cut"><span class="words">${words}</span> · <${When} moment=${row["updated"]} /></span></span></a>
      <button class="button plain square" ref=${menu} aria-label=${`More about ${title}`} aria-expanded=${open} onClick=${() => setOpen(!open)}>
        <${Icon} name="dots" /></button>
    </div>
    ${open && html`<${Actions} row=${row} closed=${closed} changed=${changed} />`}
    ${children.length > 0 && html`<button class="entry small quiet nest" aria-expanded=${shown} onClick=${() => setShown(!shown)}>
      <${Icon} name=${shown ? "down" : "right"} />${counted(children)}</button>`}
    ${shown && html`<ul class="bare list children">${children.map((child) => html`<${Line} key=${child.id} row=${child} below=${below}
      session=${session} changed=${changed} />`)}</ul>`}
  </li>`;
}
