// @ts-check
// What runs by the clock: the jobs of cron.json, and the sessions that continue by themselves.
import { ApiError, post, remove, sessionPath } from "../session/api.js";
import { focusOnce } from "../header.js";
import { Icon } from "../icons.js";
import { html, useEffect, useId, useState } from "../lib.js";
import { sessionHref } from "../router.js";
import { store, storedValue, toast, tried } from "../session/state.js";
import { common } from "../words/conversation.js";
import { schedule as words } from "../words/pages.js";
import { Button, Nothing, Pending, Section, Sure, When, useAct, useData, useFeed, useSettled, useTicking } from "./kit.js";

/** @typedef {{id: string, name: string, enabled: boolean, schedule: string, timezone: string, catch_up: string, session_id: string,
 *   next: number | null, last: number | null, outcome: string, runs: number, file: string, line: number,
 *   prompt: string, permission: string, hands_over: boolean, has_session: boolean}} Job */

export function Panel() {
  const given = useData("/api/cron");
  const [adding, setAdding] = useState(false);
  useFeed((event) => (event.type === "turn.finished" || event.type === "session.created") && given.reload(), given.reload);
  useTicking();
  const jobs = /** @type {Job[]} */ (given.data?.jobs ?? []);
  const problems = /** @type {string[]} */ (given.data?.problems ?? []);
  const reload = async () => {
    await tried(async () => {
      const { problems: found } = await post("/api/cron/reload");
      toast(found.length ? words.reloadedWith(found.length) : words.reloaded);
    });
    given.reload();
  };
  const closed = () => {
    setAdding(false);
    given.reload();
  };
  return html`<div class="row">
      <p class="quiet grow lead">${words.lead(html`<code>cron.json</code>`, html`<code>lmagent scheduler</code>`)}</p>
      <${Button} icon="refresh" label=${words.refresh} onClick=${reload} />
      ${!adding && html`<${Button} icon="plus" label=${words.add} kind="main" onClick=${() => setAdding(true)} />`}</div>
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
  const [busy, run] = useAct(changed);
  const [editing, setEditing] = useState(false);
  const name = job.name || job.id;
  const act = (/** @type {string} */ verb, /** @type {(answer: any) => string} */ told) =>
    run(async () => toast(told(await post(`/api/cron/${encodeURIComponent(job.id)}/${verb}`))));
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
      ${job.session_id && html`<dt>${words.session}</dt><dd>${!job.has_session ? job.session_id
        : html`<a href=${sessionHref(job.session_id)}>${job.session_id}</a>`}</dd>`}</dl>
    <div class="row"><span class="grow small quiet">${words.place(job.file, job.line)}</span>
      <${Button} icon="edit" label=${words.edit} aria-label=${words.editNamed(name)} onClick=${() => setEditing(true)} />
      <${Sure} label=${words.run} icon="pulse" disabled=${busy} question=${words.runQuestion(name)} yes=${words.runYes}
        act=${() => act("run", () => words.started(job.id))} /></div>
  </li>`;
}

/** Sessions that wait for a time. */
function Waiting() {
  const given = useData("/api/sessions?limit=500");
  useFeed((event) => event.type.startsWith("turn.") && given.reload(), given.reload);
  const waiting = /** @type {import("../session/wire.js").Row[]} */ (given.data?.sessions ?? []).filter((row) => row.waiting_for === "time");
  if (!waiting.length) return given.error ? html`<${Pending} given=${given} what=${words.whatWaiting} />` : null;
  return html`<${Section} title=${words.waiting}>
    <ul class="bare list">${waiting.map((row) => html`<li key=${row.id}><a class="entry" href=${sessionHref(row.id)}><${Icon} name="clock" />
      <span class="grow cut">${row.title || row.id}</span><${Until} key=${row["updated"]} id=${row.id} /></a></li>`)}</ul></>`;
}

/** When a session continues. @param {{id: string}} props */
function Until({ id }) {
  const until = useData(sessionPath(id, "/view?last=1")).data?.view.until; // the session itself shows its errors
  return until ? html`<span class="small quiet"><${When} moment=${until} /></span>` : null;
}

/** @typedef {"name" | "prompt" | "schedule" | "timezone" | "permission" | "catch_up" | "session_id"} Name */
/** @typedef {Record<Name, string>} Typed */

const labels = words.form;
const EMPTY = /** @type {Typed} */ ({ name: "", prompt: "", schedule: "", timezone: "", permission: "", catch_up: "once", session_id: "" });
const ZONES = /** @type {string[]} */ (/** @type {any} */ (Intl).supportedValuesOf?.("timeZone") ?? []);
const PLACES = /** @type {Name[]} */ (Object.keys(EMPTY));
const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** An id made of a name, which no other job has. @param {string} name @param {string[]} taken */
function idOf(name, taken) {
  const plain = name.normalize("NFKD").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 40) || "job";
  let id = plain;
  for (let number = 2; taken.includes(id); number++) id = `${plain}-${number}`;
  return id;
}

/** @param {Job} job @returns {Typed} */
function typedOf({ name, id, prompt, schedule: when, timezone, permission, catch_up, session_id }) {
  return { name: name || id, prompt, schedule: when, timezone, permission, catch_up, session_id };
}

/** @param {{job: Job | null, taken: string[], closed: () => void}} props */
function JobForm({ job, taken, closed }) {
  const key = `lmagent.job.${job?.id ?? "new"}`;
  const first = job ? typedOf(job) : EMPTY;
  const [kept] = useState(() => /** @type {Partial<Typed> | null} */ (storedValue(key)));
  const [typed, setTyped] = useState(/** @type {Typed} */ ({ ...first, ...kept }));
  const [wrong, setWrong] = useState(/** @type {{field: string, text: string}} */ ({ field: "", text: "" }));
  const id = useId();
  const change = (/** @type {Name} */ name) => (/** @type {any} */ event) => {
    const next = { ...typed, [name]: event.target.value };
    setTyped(next);
    store(key, JSON.stringify(next));
    if (wrong.field === name) setWrong({ field: "", text: "" });
  };
  const leave = () => {
    store(key, "");
    closed();
  };
  const save = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const missing = /** @type {Name[]} */ (["name", "prompt", "schedule"]).find((name) => !typed[name].trim());
    if (missing) return setWrong({ field: missing, text: labels.missing });
    const fields = { ...typed, enabled: job?.enabled ?? true };
    try {
      await (job ? post(`/api/jobs/${encodeURIComponent(job.id)}`, fields) : post("/api/jobs", { ...fields, id: idOf(typed.name, taken) }));
      toast(labels.saved(typed.name));
      leave();
    } catch (error) {
      const { code, words: text } = /** @type {ApiError} */ (error);
      const field = code.startsWith("invalid_") ? code.slice("invalid_".length) : "";
      setWrong({ field: PLACES.includes(/** @type {Name} */ (field)) ? field : "all", text });
    }
  };
  const discard = async () => {
    await tried(async () => {
      await remove(`/api/jobs/${encodeURIComponent(job?.id ?? "")}`);
      toast(labels.removed(typed.name));
      leave();
    });
  };
  const field = (/** @type {Name} */ name, /** @type {string} */ label, /** @type {any} */ control, /** @type {any} */ hint = "") => html`<div class="job-field">
    <label for=${`${id}-${name}`}>${label}</label>${control}
    <div class="small quiet" id=${`${id}-${name}-hint`}>${wrong.field === name ? html`<span class="needed" role="alert">${wrong.text}</span>` : hint}</div></div>`;
  const given = (/** @type {Name} */ name) => ({
    id: `${id}-${name}`, class: "field", value: typed[name], onInput: change(name), "aria-invalid": wrong.field === name, "aria-describedby": `${id}-${name}-hint`,
  });
  return html`<form class="job-form" onSubmit=${save} aria-label=${job ? labels.editHeading(typed.name) : labels.newHeading} novalidate>
    <h2>${job ? labels.editHeading(job.name || job.id) : labels.newHeading}</h2>
    ${kept && html`<p class="small quiet" role="status">${labels.restored}</p>`}
    ${field("name", labels.name, html`<input ...${given("name")} maxlength="100" autocomplete="off" ref=${focusOnce} />`)}
    ${field("prompt", labels.prompt, html`<textarea ...${given("prompt")} rows="4"></textarea>`, labels.promptHint)}
    <div class="job-pair">
      ${field("schedule", labels.schedule, html`<input ...${given("schedule")} autocomplete="off" spellcheck=${false} />`, labels.scheduleHint)}
      ${field("timezone", labels.timezone, html`<input ...${given("timezone")} list=${`${id}-zones`} autocomplete="off" spellcheck=${false} />
        <datalist id=${`${id}-zones`}>${ZONES.map((zone) => html`<option key=${zone} value=${zone}></option>`)}</datalist>`, labels.timezoneHint(ZONE))}</div>
    <${Preview} schedule=${typed.schedule} timezone=${typed.timezone} />
    <div class="job-pair">
      ${field("permission", labels.permission, html`<select ...${given("permission")}>${Object.entries(labels.permissions).map(([value, label]) => html`
        <option key=${value} value=${value} selected=${value === typed.permission}>${label}</option>`)}</select>`, typed.permission === "auto" ? labels.auto : labels.unattended)}
      ${field("catch_up", labels.catchUp, html`<select ...${given("catch_up")}>${Object.entries(labels.catchUps).map(([value, label]) => html`
        <option key=${value} value=${value} selected=${value === typed.catch_up}>${label}</option>`)}</select>`)}</div>
    ${field("session_id", labels.sessionId, html`<input ...${given("session_id")} maxlength="100" autocomplete="off" spellcheck=${false} />`, labels.sessionHint)}
    ${job?.hands_over && html`<p class="small quiet">${labels.handsOver}</p>`}
    <div role="alert">${wrong.field === "all" && html`<p class="notice error"><${Icon} name="warning" />${wrong.text}</p>`}</div>
    <div class="row"><button class="button main">${job ? labels.save : labels.create}</button>
      <button type="button" class="button plain" onClick=${leave}>${common.cancel}</button></div>
  </form>
  ${job && html`<div><${Sure} label=${labels.remove} icon="trash" kind="button plain" question=${labels.removeQuestion} yes=${labels.remove} act=${discard} /></div>`}`;
}

/** When the schedule is due next. @param {{schedule: string, timezone: string}} props */
function Preview({ schedule: text, timezone }) {
  const asked = useSettled(JSON.stringify({ schedule: text.trim(), timezone: timezone.trim() }), 300);
  const [found, setFound] = useState(/** @type {{times: number[], timezone: string, problem: string} | null} */ (null));
  useEffect(() => {
    let here = true;
    const wanted = JSON.parse(asked);
    if (!wanted.schedule) {
      setFound(null);
      return;
    }
    post("/api/cron/preview", wanted).then(
      (answer) => here && setFound({ ...answer, problem: "" }),
      (/** @type {ApiError} */ { words: problem }) => here && setFound({ times: [], timezone: "", problem }));
    return () => {
      here = false;
    };
  }, [asked]);
  if (!found) return null;
  if (found.problem) return html`<p class="small needed" role="status">${found.problem}</p>`;
  const shown = (/** @type {number} */ time) => new Date(time * 1000).toLocaleString([], {
    weekday: "short", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", timeZone: found.timezone,
  });
  return html`<div class="small" role="status">${!found.times.length ? labels.atStartup : html`${labels.nextRuns(found.timezone)}
    <ul class="next-runs">${found.times.map((time) => html`<li key=${time}>${shown(time)}</li>`)}</ul>`}</div>`;
}
