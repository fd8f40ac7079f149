// @ts-check
// A job is made or edited: what is typed stays in this browser until it is saved or given up.
import { ApiError, post, remove } from "../api.js";
import { Icon } from "../icons.js";
import { html, useEffect, useId, useState } from "../lib.js";
import { complain, toast } from "../state.js";
import { store, stored } from "../theme.js";
import { schedule } from "../words/pages.js";
import { useSettled } from "./data.js";
import { Sure } from "./kit.js";

/** @typedef {import("./schedule.js").Job} Job */
/** @typedef {"name" | "prompt" | "schedule" | "timezone" | "permission" | "catch_up" | "session_id"} Name */
/** @typedef {Record<Name, string>} Typed */

const words = schedule.form;
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
export function JobForm({ job, taken, closed }) {
  const key = `lmagent.job.${job?.id ?? "new"}`;
  const first = job ? typedOf(job) : EMPTY;
  const [kept] = useState(() => draft(key));
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
    if (missing) return setWrong({ field: missing, text: words.missing });
    const fields = { ...typed, enabled: job?.enabled ?? true };
    try {
      await (job ? post(`/api/jobs/${encodeURIComponent(job.id)}`, fields) : post("/api/jobs", { ...fields, id: idOf(typed.name, taken) }));
      toast(words.saved(typed.name));
      leave();
    } catch (error) {
      const { code, words: text } = /** @type {ApiError} */ (error);
      const field = code.startsWith("invalid_") ? code.slice("invalid_".length) : "";
      setWrong({ field: PLACES.includes(/** @type {Name} */ (field)) ? field : "all", text });
    }
  };
  const discard = async () => {
    try {
      await remove(`/api/jobs/${encodeURIComponent(job?.id ?? "")}`);
      toast(words.removed(typed.name));
      leave();
    } catch (error) {
      complain(error);
    }
  };
  const field = (/** @type {Name} */ name, /** @type {string} */ label, /** @type {any} */ control, /** @type {any} */ hint = "") => html`<div class="job-field">
    <label for=${`${id}-${name}`}>${label}</label>${control}
    <div class="small quiet" id=${`${id}-${name}-hint`}>${wrong.field === name ? html`<span class="needed" role="alert">${wrong.text}</span>` : hint}</div></div>`;
  const common = (/** @type {Name} */ name) => ({
    id: `${id}-${name}`, class: "field", value: typed[name], onInput: change(name), "aria-invalid": wrong.field === name, "aria-describedby": `${id}-${name}-hint`,
  });
  return html`<form class="job-form" onSubmit=${save} aria-label=${job ? words.editHeading(typed.name) : words.newHeading} novalidate>
    <h2>${job ? words.editHeading(job.name || job.id) : words.newHeading}</h2>
    ${kept && html`<p class="small quiet" role="status">${words.restored}</p>`}
    ${field("name", words.name, html`<input ...${common("name")} maxlength="100" autocomplete="off" ref=${focusOnce} />`)}
    ${field("prompt", words.prompt, html`<textarea ...${common("prompt")} rows="4"></textarea>`, words.promptHint)}
    <div class="job-pair">
      ${field("schedule", words.schedule, html`<input ...${common("schedule")} autocomplete="off" spellcheck=${false} />`, words.scheduleHint)}
      ${field("timezone", words.timezone, html`<input ...${common("timezone")} list=${`${id}-zones`} autocomplete="off" spellcheck=${false} />
        <datalist id=${`${id}-zones`}>${ZONES.map((zone) => html`<option key=${zone} value=${zone}></option>`)}</datalist>`, words.timezoneHint(ZONE))}</div>
    <${Preview} schedule=${typed.schedule} timezone=${typed.timezone} />
    <div class="job-pair">
      ${field("permission", words.permission, html`<select ...${common("permission")}>${Object.entries(words.permissions).map(([value, label]) => html`
        <option key=${value} value=${value} selected=${value === typed.permission}>${label}</option>`)}</select>`, typed.permission === "auto" ? words.auto : words.unattended)}
      ${field("catch_up", words.catchUp, html`<select ...${common("catch_up")}>${Object.entries(words.catchUps).map(([value, label]) => html`
        <option key=${value} value=${value} selected=${value === typed.catch_up}>${label}</option>`)}</select>`)}</div>
    ${field("session_id", words.sessionId, html`<input ...${common("session_id")} maxlength="100" autocomplete="off" spellcheck=${false} />`, words.sessionHint)}
    ${job?.hands_over && html`<p class="small quiet">${words.handsOver}</p>`}
    <div role="alert">${wrong.field === "all" && html`<p class="notice error"><${Icon} name="warning" />${wrong.text}</p>`}</div>
    <div class="row"><button class="button main">${job ? words.save : words.create}</button>
      <button type="button" class="button plain" onClick=${leave}>${words.cancel}</button></div>
  </form>
  ${job && html`<div><${Sure} label=${words.remove} icon="trash" kind="button plain" question=${words.removeQuestion} yes=${words.remove} act=${discard} /></div>`}`;
}

/** @param {HTMLElement | null} field */
const focusOnce = (field) => field && !field.closest("form")?.contains(document.activeElement) && field.focus();

/** What was typed and not saved. @param {string} key @returns {Partial<Typed> | null} */
function draft(key) {
  try {
    return JSON.parse(stored(key, "") || "null");
  } catch {
    return null;
  }
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
  return html`<div class="small" role="status">${!found.times.length ? words.atStartup : html`${words.nextRuns(found.timezone)}
    <ul class="next-runs">${found.times.map((time) => html`<li key=${time}>${shown(time)}</li>`)}</ul>`}</div>`;
}
