// @ts-check
// The session's tasks, its plan with steps, and its sub-agents.
import { post, sessionPath } from "../session/api.js";
import { Icon } from "../icons.js";
import { html, useState } from "../lib.js";
import { figure, useEvery } from "../parts.js";
import { sessionHref } from "../router.js";
import { current } from "../session/session.js";
import { toast, tried } from "../session/state.js";
import { work as words } from "../words/files.js";
import { agents as texts } from "../words/pages.js";
import { Choice, Line, Nothing, Pending, Sure, standing, useData, useFeed } from "./kit.js";

/** @typedef {import("../session/wire.js").Task} Task */
/** @typedef {import("../icons.js").IconName} IconName */

/** @type {Record<NonNullable<Task["status"]>, {icon: IconName, label: string}>} */
const STATES = {
  pending: { icon: "dots", label: words.pending },
  in_progress: { icon: "pulse", label: words.inProgress },
  completed: { icon: "check", label: words.completed },
  blocked: { icon: "warning", label: words.blocked },
  failed: { icon: "close", label: words.failed },
  skipped: { icon: "right", label: words.skipped },
};

const KINDS = /** @type {const} */ ([["step", words.plan], ["todo", words.todo], ["task", words.tasks]]);

const MODES = /** @type {Record<string, string>} */ ({
  plan: words.planMode,
  deep: words.deepMode,
  bounded: words.boundedMode,
});

/** @param {import("../panels.js").PanelProps} props */
export function Panel({ session }) {
  const tree = useData(session ? sessionPath(session, "/tree") : "");
  const work = useData(session ? sessionPath(session, "/work") : "");
  const project = useData("/api/project");
  useFeed((event) => {
    if (event.type === "tasks.changed" || event.type === "turn.finished") project.reload();
    if (event.type.startsWith("subagent.")) tree.reload();
    if (event.session === session && (event.type === "tasks.changed" || event.type === "plan.decided")) work.reload();
  }, () => {
    tree.reload();
    work.reload();
    project.reload();
  });
  const view = current.value?.id === session ? current.value.view.value : null;
  const working = view !== null && view.state !== "idle";
  const agents = /** @type {Node[]} */ ((tree.data?.nodes ?? []).filter((/** @type {any} */ node) => node.session !== session));
  useEvery(working && agents.length ? 2000 : 0, tree.reload);
  const tasks = view?.tasks ?? [];
  const proposed = view?.plan?.["plan"] ?? null;
  return html`<div class="work">
    ${view && MODES[view.work] && html`<p class="notice"><${Icon} name="info" /><span>${MODES[view.work]}</span></p>`}
    ${proposed && html`<p class="notice warning"><${Icon} name="tasks" /><span>${words.proposed(proposed.title)}</span></p>`}
    <${Project} given=${project} />
    ${KINDS.map(([kind, title]) => html`<${List} key=${kind} title=${title} tasks=${tasks.filter((task) => task.kind === kind)}
      plan=${kind === "step" ? work.data?.plan : null} />`)}
    <${Batch} state=${work.data?.state ?? null} />
    ${agents.length > 0 && html`<${Agents} nodes=${agents} root=${session} changed=${tree.reload} />`}
    <${Pending} given=${work} what=${words.what} />
    ${!work.error && html`<${Pending} given=${tree} what=${words.whatAgents} />`}
    ${view && tree.data && work.data && !tasks.length && !agents.length && !proposed && !work.data.state && html`<${Nothing} icon="tasks" title=${words.nothing}>${words.nothingHint}</>`}
  </div>`;
}

/** The workspace's project.json and notebook. @param {{given: import("./kit.js").Loaded<any>}} props */
function Project({ given: { data, reload } }) {
  if (!data?.state) return null;
  const send = (/** @type {string} */ operation, /** @type {string} */ text) =>
    tried(() => post("/api/project", { operation, text })).finally(reload);
  return html`<section class="section" aria-label=${words.project}>
    <h3>${data.name}</h3>
    <p class="small">${data.goal}</p>
    <${Choice} label=${words.project} options=${[data.state, ...data.moves].map((value) => ({ value, label: value }))} value=${data.state}
      choose=${(/** @type {string} */ state) => send("state", state)} />
    <ul class="bare tasks">${data.tasks.map((/** @type {Task} */ task) => html`<${Item} key=${task.id} task=${task} tasks=${[]} />`)}</ul>
    <ul class="bare small">${data.notebook.map((/** @type {string} */ entry) => html`<li class="wrap">${entry}</li>`)}</ul>
    <${Line} label=${words.note} yes=${words.note} most=${10000} save=${(/** @type {string} */ text) => send("note", text)} />
  </section>`;
}

/** @param {{title: string, tasks: Task[], plan: import("../session/wire.js").Plan | null}} props `plan` is where the tasks come from */
function List({ title, tasks, plan }) {
  if (!tasks.length) return null;
  const over = tasks.filter((task) => task.status === "completed" || task.status === "skipped").length;
  const known = new Set(tasks.map((task) => task.id));
  const tops = tasks.filter((task) => !task.parent || !known.has(task.parent));
  return html`<section class="section" aria-label=${title}>
    <h3>${title} <span class="small quiet">${words.count(over, tasks.length)}</span></h3>
    <progress max=${tasks.length} value=${over} aria-label=${`${title}: ${words.count(over, tasks.length)}`}></progress>
    ${plan && html`<p class="small"><strong>${plan.title}</strong>. <span class="quiet">${plan.goal}</span></p>`}
    ${plan && (plan.risk_areas?.length ?? 0) > 0 && html`<p class="small quiet">${words.risks(plan.risk_areas?.join("; ") ?? "")}</p>`}
    <ul class="bare tasks">${tops.map((task) => html`<${Item} key=${task.id} task=${task} tasks=${tasks} />`)}</ul></section>`;
}

/** Names and texts, of those that have a text. @param {(string | undefined)[][]} rows */
const facts = (rows) => html`<dl class="facts small">${rows.filter(([, text]) => text).map(([name, text]) => html`<dt>${name}</dt><dd>${text}</dd>`)}</dl>`;

/** @param {{task: Task, tasks: Task[]}} props */
function Item({ task, tasks }) {
  const status = task.status ?? "pending";
  const { icon, label } = STATES[status];
  const parts = tasks.filter((other) => other.parent === task.id);
  const details = [[words.verify, task.verification], [words.risk, task.risk], [words.notes, task.notes], [words.result, task.result],
    [words.after, task.depends_on?.join(", ")]];
  return html`<li class="task" data-status=${status}>
    <div class="headline"><${Icon} name=${icon} /><span class="grow wrap">${task.title}</span><span class="chip">${label}</span></div>
    ${details.some(([, text]) => text) && html`<details><summary class="small quiet">${words.details(task.id)}</summary>${facts(details)}</details>`}
    ${parts.length > 0 && html`<ul class="bare tasks">${parts.map((part) => html`<${Item} key=${part.id} task=${part} tasks=${tasks} />`)}</ul>`}
  </li>`;
}

/**
 * core/work.py: TaskState; unchanged fields are left out.
 * @typedef {{objective?: string, completion_gate?: string, total_count?: number, processed_count?: number, remaining_queue?: string[],
 *   rename_map?: Record<string, string>, last_error?: string, recovery_instruction?: string, next_action?: string}} State
 */

/** Where a batch stands. @param {{state: State | null}} props */
function Batch({ state }) {
  if (!state) return null;
  const done = state.processed_count ?? 0;
  const queue = state.remaining_queue ?? [];
  const rows = [[words.goal, state.objective], [words.gate, state.completion_gate], [words.next, state.next_action], [words.left, queue.join(", ")],
    [words.renamed, Object.entries(state.rename_map ?? {}).map(([from, to]) => `${from} → ${to}`).join(", ")],
    [words.lastError, state.last_error], [words.recovery, state.recovery_instruction]];
  return html`<section class="section" aria-label=${words.state}>
    <h3>${words.state} <span class="small quiet">${words.count(done, state.total_count ?? words.unknown)}</span></h3>
    ${state.total_count && html`<progress max=${state.total_count} value=${done} aria-label=${words.count(done, state.total_count)}></progress>`}
    ${facts(rows)}</section>`;
}

/**
 * @typedef {Object} Node
 * @property {string} session
 * @property {string} parent session that asked
 * @property {string} task
 * @property {string} objective
 * @property {string} status
 * @property {number} step model calls until now
 * @property {number} tokens
 * @property {string} title
 */

/** @param {{nodes: Node[], root: string, changed: () => void}} props */
function Agents({ nodes, root, changed }) {
  const known = new Set(nodes.map((node) => node.session));
  const tops = nodes.filter((node) => node.parent === root || !known.has(node.parent));
  return html`<section class="section" aria-label=${texts.heading}><h3>${texts.heading} <span class="small quiet">${nodes.length}</span></h3>
    <ul class="bare agents">${tops.map((node) => html`<${Agent} key=${node.session} node=${node} nodes=${nodes} changed=${changed} />`)}</ul></section>`;
}

/** @param {{node: Node, nodes: Node[], changed: () => void}} props */
function Agent({ node, nodes, changed }) {
  const [steering, setSteering] = useState(false);
  const { icon, kind, words } = standing({ status: node.status });
  const below = nodes.filter((other) => other.parent === node.session);
  const name = node.objective || node.title || node.session;
  const runs = node.status === "running";
  const stop = async () => {
    if (await current.peek()?.command({ type: "interrupt", to: node.session })) toast(texts.told);
    changed();
  };
  const steer = async (/** @type {string} */ text) => {
    const message = { role: "user", parts: [{ type: "text", text }] };
    const taken = await current.peek()?.command({ type: "steer", to: node.session, message });
    if (taken) toast(texts.delivered);
    return taken;
  };
  return html`<li><div class="card agent" data-kind=${kind}>
    <div class="headline"><${Icon} name=${icon} /><span class="grow wrap">${name}</span><span class=${`chip ${kind}`}>${words}</span></div>
    <p class="small quiet">${[node.task, texts.steps(node.step), texts.tokens(figure(node.tokens))].filter(Boolean).join(" · ")}</p>
    <div class="row"><a class="button plain" href=${sessionHref(node.session)} aria-label=${texts.openOf(name)}><${Icon} name="right" />${texts.open}</a>
      ${runs && html`<button class="button plain" aria-expanded=${steering} onClick=${() => setSteering(!steering)}>${texts.message}</button>
        <${Sure} label=${texts.stop} icon="stop" kind="button plain" question=${texts.stopQuestion} yes=${texts.stopYes} act=${stop} />`}</div>
    ${runs && steering && html`<${Line} label=${texts.messageTo(name)} yes=${texts.send} most=${100000} save=${steer} close=${() => setSteering(false)} />`}
  </div>
  ${below.length > 0 && html`<ul class="bare agents">${below.map((child) => html`
    <${Agent} key=${child.session} node=${child} nodes=${nodes} changed=${changed} />`)}</ul>`}</li>`;
}
