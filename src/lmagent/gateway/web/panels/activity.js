// @ts-check
// What happens in all sessions, the newest first, while it happens.
import { Icon } from "../icons.js";
import { html, useState } from "../lib.js";
import { duration } from "../parts.js";
import { go, pageHref, sessionHref } from "../router.js";
import { activity as texts } from "../words/pages.js";
import { Choice, Nothing, Pending, useData, useFeed, useTicking, When } from "./kit.js";

/** @typedef {import("../icons.js").IconName} IconName */
/** @typedef {{session: string, seq: number, ts: number, type: string, tool: string, summary: string, status: string, duration_ms: number, title: string}} Line */

const FIRST = 100;
const MOST = 1000;
const NOTICEABLE = 100;

/** @type {Record<string, IconName>} */
const ICONS = { message: "send", tool_call: "tool", tool_result: "check", approval_request: "shield", approval_resolved: "shield", done: "stop" };

const GROUPS = /** @type {const} */ ([
  { value: "all", label: texts.groups.all, types: null },
  { value: "messages", label: texts.groups.messages, types: ["message"] },
  { value: "tools", label: texts.groups.tools, types: ["tool_call", "tool_result"] },
  { value: "approvals", label: texts.groups.approvals, types: ["approval_request", "approval_resolved"] },
  { value: "turns", label: texts.groups.turns, types: ["done"] },
]);

/** Events that make a line. */
const TELLING = new Set(["input.received", "tool.started", "tool.finished", "approval.requested", "approval.resolved", "turn.finished"]);

/** @param {import("../panels.js").PanelProps} props `rest` is the session that is shown alone */
export function Panel({ rest }) {
  const [kind, setKind] = useState("all");
  const [limit, setLimit] = useState(FIRST);
  const given = useData(`/api/activity?limit=${limit}${rest ? `&session=${encodeURIComponent(rest)}` : ""}`, { keep: true });
  const sessions = useData("/api/sessions?limit=100");
  useFeed((event) => {
    if (TELLING.has(event.type) && (!rest || event.session === rest)) given.reload();
    if (event.type === "session.created") sessions.reload();
  }, given.reload);
  useTicking();
  const lines = /** @type {Line[]} */ (given.data?.activity ?? []);
  const types = /** @type {readonly string[] | null} */ (GROUPS.find((group) => group.value === kind)?.types ?? null);
  const fitting = types ? lines.filter((line) => types.includes(line.type)) : lines;
  const rows = /** @type {import("../session/wire.js").Row[]} */ (sessions.data?.sessions ?? []);
  return html`<div class="row filters">
      <${Choice} label=${texts.kind} options=${GROUPS} value=${kind} choose=${setKind} />
      <select class="field" aria-label=${texts.session} value=${rest} onChange=${(/** @type {any} */ event) => go(pageHref("activity", event.target.value))}>
        <option value="">${texts.allSessions}</option>
        ${rest && !rows.some((row) => row.id === rest) && html`<option value=${rest}>${rest}</option>`}
        ${rows.map((row) => html`<option key=${row.id} value=${row.id}>${row.title || row.id}</option>`)}</select></div>
    <${Pending} given=${given} what=${texts.what} />
    ${given.data && !fitting.length && html`<${Nothing} icon="pulse" title=${texts.none}>${lines.length
      ? texts.noneOfKind : texts.noneAbout}</>`}
    <ol class="bare activity">${fitting.map((line) => html`<${Shown} key=${`${line.session} ${line.seq}`} line=${line} alone=${rest !== ""} />`)}</ol>
    ${lines.length >= limit && limit < MOST && html`<button class="button" onClick=${() => setLimit(Math.min(MOST, limit + 3 * FIRST))}>${texts.older}</button>`}`;
}

const BAD = new Set(["error", "denied", "failed"]);

/** @param {{line: Line, alone: boolean}} props */
function Shown({ line, alone }) {
  const icon = ICONS[line.type] ?? "info";
  const refused = line.type === "approval_resolved" && line.status === "denied";
  const words = line.type === "tool_result" ? texts.returned(line.tool) : refused ? texts.denied : texts.kinds[line.type] ?? line.type;
  const bad = BAD.has(line.status);
  const seconds = line.duration_ms >= NOTICEABLE ? duration(line.duration_ms / 1000) : "";
  const about = [line.status, seconds].filter(Boolean).map((text) => html`<span>${text}</span> · `);
  return html`<li class=${bad ? "bad" : ""}>
    <${Icon} name=${bad ? "warning" : icon} />
    <div class="grow">
      <p class="what"><span class="quiet">${words}</span> <span class="wrap">${line.summary}</span></p>
      <p class="small quiet about">${about}<${When} moment=${line.ts} />${!alone && html` · <a href=${sessionHref(line.session)}>${line.title || line.session}</a>`}</p></div></li>`;
}
