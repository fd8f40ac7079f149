// @ts-check
// What runs by the clock: the jobs of cron.json, and the sessions that continue by themselves.
import { get, post, sessionPath } from "../api.js";
import { Icon } from "../icons.js";
import { html, useEffect, useState } from "../lib.js";
import { sessionHref } from "../router.js";
import { complain, toast } from "../state.js";
import { schedule as words } from "../words/pages.js";
import { Pending, useData } from "./data.js";
import { useFeed } from "./feed.js";
import { JobForm } from "./jobform.js";
import { Nothing, Sure } from "./kit.js";
import { useTicking, When } from "./moments.js";

/** @typedef {{id: string, name: string, enabled: boolean, schedule: string, timezone: string, catch_up: string, session_id: string,
 *   next: number | null, last: number | null, outcome: string, runs: number, file: string, line: number,
 *   prompt: string, permission: string, hands_over: boolean}} Job */

export function Panel() {
  const given = useData("/api/cron");
  const [adding, setAdding] = useState(false);
  useFeed((event) => (event.type === "turn.finished" || event.type === "session.created") && given.reload(), given.reload);
  useTicking();
  const jobs = /** @type {Job[]} */ (given.data?.jobs ?? []);
  const problems = /** @type {string[]} */ (given.data?.problems ?? []);
  const reload = async () => {
    try {
      const { problems: found } = await post("/api/cron/reload");
      toast(found.length ? words.reloadedWith(found.length) : words.reloaded);
    } catch (error) {
      complain(error);
    }
    given.reload();
  };
  const closed = () => {
    setAdding(false);
    given.reload();
  };
  return html`<div class="row">
      <p class="quiet grow lead">${words.lead(html`<code>cron.json</code>`, html`<code>lmagent scheduler</code>`)}</p>
      <button class="button" onClick=${reload}><${Icon} name="refresh" />${words.refresh}</button>
      ${!adding && html`<button class="button main" onClick=${() => setAdding(true)}><${Icon} name="plus" />${words.add}</button>`}</div>
    <${Pending} given=${given} what=${words.what} />
    ${problems.length > 0 && html`<div class="notice warning" role="status"><${Icon} name="warning" /><div><strong>${words.problems}</strong>
      <ul>${problems.map((problem) => html`<li key=${problem}>${problem}</li>`)}</ul></div></div>`}
    ${adding && html`<div class="card job"><${JobForm} job=${null} taken=${jobs.map(({ id }) => id)} closed=${closed} /></div>`}
    ${given.data && !jobs.length && !problems.length && !adding && html`<${Nothing} icon="clock" title=${words.none}>${words.noneAbout}</>`}
    <ul class="bare cards">${jobs.map((job) => html`<${Card} key=${job.id} job=${job} changed=${given.reload} />`)}</ul>
    <${Waiting} />`;
}

/** @param {{job: Job, changed: () => void}} props */
function Card({ job, changed }) {
  const [busy, setBusy] = useState(false);
  const [editing, setEditing] = useState(false);
  const name = job.name || job.id;
  const act = async (/** @type {string} */ verb, /** @type {(answer: any) => string} */ told) => {
    setBusy(true);
    try {
      toast(told(await post(`/api/cron/${encodeURIComponent(job.id)}/${verb}`)));
    } catch (error) {
      complain(error);
    }
    setBusy(false);
    changed();
  };
  const closed = () => {
    setEditing(false);
    changed();
  };
  if (editing) return html`<li class="card job" aria-label=${name}><${JobForm} job=${job} taken=${[]} closed=${closed} /></li>`;
  const failed = ["error", "blocked", "limit", "denied"].includes(job.outcome);
  return html`<li class="card job" aria-label=${name}>
    <div class="row"><h2 class="grow wrap">${name}</h2>
      <label class="switch"><input type="checkbox" role="switch" checked=${job.enabled} disabled=${busy} aria-label=${words.switchOf(name)}
        onChange=${() => act("toggle", ({ enabled }) => words.switched(job.id, enabled))} />
        <span aria-hidden="true">${job.enabled ? words.on : words.off}</span></label></div>
    <p class="small wrap clamp">${job.prompt}</p>
    <dl class="facts"><dt>${words.when}</dt><dd><code>${job.schedule}</code> <span class="small quiet">${job.timezone}</span></dd>
      <dt>${words.next}</dt><dd>${!job.enabled ? words.nextOff : job.next === null ? words.nextNever : html`<${When} moment=${job.next} />`}</dd>
      <dt>${words.last}</dt><dd>${job.last === null ? words.never : html`
        <${When} moment=${job.last} /> · <span class=${failed ? "chip failed" : "chip"}>${job.outcome || words.running}</span>`}
        ${job.runs > 1 && html` <span class="small quiet">${words.runs(job.runs)}</span>`}</dd>
      ${job.session_id && html`<dt>${words.session}</dt><dd>${job.last === null ? job.session_id
        : html`<a href=${sessionHref(job.session_id)}>${job.session_id}</a>`}</dd>`}</dl>
    <div class="row"><span class="grow small quiet">${words.place(job.file, job.line)}</span>
      <button class="button" aria-label=${words.editNamed(name)} onClick=${() => setEditing(true)}><${Icon} name="edit" />${words.edit}</button>
      <${Sure} label=${words.run} icon="pulse" disabled=${busy} question=${words.runQuestion(name)} yes=${words.runYes}
        act=${() => act("run", () => words.started(job.id))} /></div>
  </li>`;
}

/** Sessions that wait for a time. */
function Waiting() {
  const given = useData("/api/sessions?limit=500");
  useFeed((event) => event.type.startsWith("turn.") && given.reload(), given.reload);
  const waiting = /** @type {import("../wire.js").Row[]} */ (given.data?.sessions ?? []).filter((row) => row.waiting_for === "time");
  if (!waiting.length) return given.error ? html`<${Pending} given=${given} what=${words.whatWaiting} />` : null;
  return html`<section class="section" aria-label=${words.waiting}><h2>${words.waiting}</h2>
    <ul class="bare list">${waiting.map((row) => html`<li key=${row.id}><a class="entry" href=${sessionHref(row.id)}><${Icon} name="clock" />
      <span class="grow cut">${row.title || row.id}</span><${Until} key=${row["updated"]} id=${row.id} /></a></li>`)}</ul></section>`;
}

/** When a session continues. @param {{id: string}} props */
function Until({ id }) {
  const [until, setUntil] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    // Without it the line only lacks the time; what is wrong with the session is told where it is opened.
    get(sessionPath(id, "/view?last=1"), stop.signal).then(({ view }) => setUntil(view.until), () => {});
    return () => stop.abort();
  }, [id]);
  return until ? html`<span class="small quiet"><${When} moment=${until} /></span>` : null;
}
