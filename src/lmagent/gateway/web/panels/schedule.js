// @ts-check
// What runs by the clock: the jobs of cron.json, and the sessions that go on by themselves.
import { get, post, sessionPath } from "../api.js";
import { Icon } from "../icons.js";
import { html, useEffect, useState } from "../lib.js";
import { sessionHref } from "../router.js";
import { complain, toast } from "../state.js";
import { Pending, useData } from "./data.js";
import { useFeed } from "./feed.js";
import { Nothing, Sure } from "./kit.js";
import { useTicking, When } from "./moments.js";

/** @typedef {{id: string, name: string, enabled: boolean, schedule: string, timezone: string, catch_up: string, session_id: string,
 *   next: number | null, last: number | null, outcome: string, runs: number, file: string, line: number}} Job */

export function Panel() {
  const given = useData("/api/cron");
  useFeed((event) => (event.type === "turn.finished" || event.type === "session.created") && given.reload(), given.reload);
  useTicking();
  const jobs = /** @type {Job[]} */ (given.data?.jobs ?? []);
  const problems = /** @type {string[]} */ (given.data?.problems ?? []);
  const reload = async () => {
    try {
      const { problems: found } = await post("/api/cron/reload");
      toast(found.length ? `read again, with ${found.length} problem${found.length > 1 ? "s" : ""}` : "read again");
    } catch (error) {
      complain(error);
    }
    given.reload();
  };
  return html`<div class="row">
      <p class="quiet grow lead">Jobs stand in <code>cron.json</code>. They run while this gateway or <code>lmagent scheduler</code> does.</p>
      <button class="button" onClick=${reload}><${Icon} name="refresh" />Read the file again</button></div>
    <${Pending} given=${given} what="the jobs" />
    ${problems.length > 0 && html`<div class="notice warning" role="status"><${Icon} name="warning" /><div><strong>What is wrong in the file</strong>
      <ul>${problems.map((problem) => html`<li key=${problem}>${problem}</li>`)}</ul></div></div>`}
    ${given.data && !jobs.length && !problems.length && html`<${Nothing} icon="clock" title="No jobs">
      <code>lmagent cron add</code> in a terminal makes one, or ask the agent to schedule something.</>`}
    <ul class="bare cards">${jobs.map((job) => html`<${Card} key=${job.id} job=${job} changed=${given.reload} />`)}</ul>
    <${Waiting} />`;
}

/** @param {{job: Job, changed: () => void}} props */
function Card({ job, changed }) {
  const [busy, setBusy] = useState(false);
  const act = async (/** @type {string} */ verb, /** @type {(answer: any) => string} */ words) => {
    setBusy(true);
    try {
      toast(words(await post(`/api/cron/${encodeURIComponent(job.id)}/${verb}`)));
    } catch (error) {
      complain(error);
    }
    setBusy(false);
    changed();
  };
  const failed = ["error", "blocked", "limit", "denied"].includes(job.outcome);
  return html`<li class="card job" aria-label=${job.name || job.id}>
    <div class="row"><h2 class="grow wrap">${job.name || job.id}</h2>
      <label class="switch"><input type="checkbox" role="switch" checked=${job.enabled} disabled=${busy} aria-label=${`${job.name || job.id}: switched on`}
        onChange=${() => act("toggle", ({ enabled }) => `${job.id} is switched ${enabled ? "on" : "off"}`)} />
        <span aria-hidden="true">${job.enabled ? "on" : "off"}</span></label></div>
    <dl class="facts"><dt>When</dt><dd><code>${job.schedule}</code> <span class="small quiet">${job.timezone}</span></dd>
      <dt>Next</dt><dd>${!job.enabled ? "never: it is switched off" : job.next === null ? "not by the clock" : html`<${When} moment=${job.next} />`}</dd>
      <dt>Last</dt><dd>${job.last === null ? "never" : html`
        <${When} moment=${job.last} /> · <span class=${failed ? "chip failed" : "chip"}>${job.outcome || "running"}</span>`}
        ${job.runs > 1 && html` <span class="small quiet">${job.runs} runs are remembered</span>`}</dd>
      ${job.session_id && html`<dt>In</dt><dd>${job.last === null ? job.session_id
        : html`<a href=${sessionHref(job.session_id)}>${job.session_id}</a>`}</dd>`}</dl>
    <div class="row"><span class="grow small quiet">${job.file}, line ${job.line}</span>
      <${Sure} label="Run now" icon="pulse" disabled=${busy} question=${`Run “${job.name || job.id}” now?`} yes="Run it"
        act=${() => act("run", () => `${job.id} runs`)} /></div>
  </li>`;
}

/** Sessions that wait for a time. */
function Waiting() {
  const given = useData("/api/sessions?limit=500");
  useFeed((event) => event.type.startsWith("turn.") && given.reload(), given.reload);
  const waiting = /** @type {import("../wire.js").Row[]} */ (given.data?.sessions ?? []).filter((row) => row.waiting_for === "time");
  if (!waiting.length) return given.error ? html`<${Pending} given=${given} what="the sessions that wait" />` : null;
  return html`<section class="section" aria-label="Sessions that go on by themselves"><h2>Sessions that go on by themselves</h2>
    <ul class="bare list">${waiting.map((row) => html`<li key=${row.id}><a class="entry" href=${sessionHref(row.id)}><${Icon} name="clock" />
      <span class="grow cut">${row.title || row.id}</span><${Until} key=${row["updated"]} id=${row.id} /></a></li>`)}</ul></section>`;
}

/** When a session goes on. @param {{id: string}} props */
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
