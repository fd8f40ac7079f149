// @ts-check
// What was spent: tokens and model calls by day, by model and by session.
import { html } from "../lib.js";
import { figure } from "../parts.js";
import { go, pageHref, sessionHref } from "../router.js";
import { Bars } from "./bars.js";
import { Pending, useData } from "./data.js";
import { useFeed } from "./feed.js";
import { Choice, Nothing } from "./kit.js";

/** @typedef {{steps: number, prompt_tokens: number, completion_tokens: number, cached_tokens: number}} Spent */
/** @typedef {{range: string, totals: Spent & {sessions: number}, by_day: (Spent & {day: string})[], by_model: (Spent & {model: string})[],
 *   by_session: (Spent & {session: string, title: string})[]}} Usage */

const RANGES = [{ value: "today", label: "Today" }, { value: "7d", label: "7 days" }, { value: "30d", label: "30 days" }, { value: "all", label: "All" }];
const SHOWN = 20;

/** @param {import("../panels.js").PanelProps} props `rest` is the range */
export function Panel({ rest }) {
  const range = RANGES.some(({ value }) => value === rest) ? rest : "7d";
  const given = useData(`/api/usage?range=${range}`, { keep: true });
  useFeed((event) => event.type === "step.finished" && given.reload(), given.reload);
  const usage = /** @type {Usage | null} */ (given.data);
  const choose = (/** @type {string} */ value) => go(pageHref("usage", value));
  return html`<div class="row filters"><${Choice} label="Range" options=${RANGES} value=${range} choose=${choose} /></div>
    <${Pending} given=${given} what="the usage" />
    ${usage && (usage.totals.steps ? html`<${Figures} usage=${usage} />` : html`<${Nothing} icon="chart" title="Nothing was spent">
      ${range === "all" ? "Tokens are counted from the first message on." : "Choose a longer range, or say something to the agent."}</>`)}`;
}

/** @param {{usage: Usage}} props */
function Figures({ usage }) {
  const { totals, by_day, by_model, by_session } = usage;
  const share = totals.prompt_tokens ? `${Math.round((totals.cached_tokens / totals.prompt_tokens) * 100)} % of what was read` : "tokens";
  const sessions = by_session.slice(0, SHOWN).map((row) => {
    return { ...row, key: row.session, name: html`<a href=${sessionHref(row.session)}>${row.title || row.session}</a>` };
  });
  return html`<dl class="totals">
      ${total("Read", totals.prompt_tokens, "tokens of prompts")}${total("Written", totals.completion_tokens, "tokens of replies")}
      ${total("From the cache", totals.cached_tokens, share)}
      ${total("Model calls", totals.steps, `in ${figure(totals.sessions)} session${totals.sessions === 1 ? "" : "s"}`)}</dl>
    <${Bars} days=${by_day} />
    <${Spending} title="By day" head="Day" rows=${[...by_day].reverse().map((row) => ({ ...row, key: row.day, name: dayOf(row.day) }))} />
    <${Spending} title="By model" head="Model" rows=${by_model.map((row) => ({ ...row, key: row.model, name: row.model || "not named by the server" }))} />
    <${Spending} title="By session" head="Session" rows=${sessions} />
    ${by_session.length > SHOWN && html`<p class="small quiet">The ${SHOWN} sessions that took most, of ${by_session.length}.</p>`}
    <p class="small quiet">Sessions that were deleted do not count.</p>`;
}

/** @param {string} name @param {number} number @param {string} about */
function total(name, number, about) {
  return html`<div class="card"><dt>${name}</dt><dd><strong>${figure(number)}</strong><span class="small quiet">${about}</span></dd></div>`;
}

/** A day as this device writes it. @param {string} day as 2026-01-31 */
export function dayOf(day) {
  return new Date(`${day}T12:00`).toLocaleDateString([], { weekday: "short", month: "short", day: "numeric" });
}

/** @param {{title: string, head: string, rows: (Spent & {key: string, name: any})[]}} props */
function Spending({ title, head, rows }) {
  return html`<section class="section" aria-label=${title}><h2>${title}</h2>
    <div class="table-wrap" tabindex="0" role="region" aria-label=${`${title}, table`}><table class="table">
    <thead><tr><th scope="col">${head}</th><th scope="col" class="number">Calls</th>
      <th scope="col" class="number">Read</th><th scope="col" class="number">Cached</th><th scope="col" class="number">Written</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.key}><th scope="row" class="name">${row.name}</th>
      <td class="number">${figure(row.steps)}</td><td class="number">${figure(row.prompt_tokens)}</td>
      <td class="number">${figure(row.cached_tokens)}</td><td class="number">${figure(row.completion_tokens)}</td></tr>`)}</tbody></table></div></section>`;
}
