// @ts-check
// What was spent: tokens and model calls by day, by model and by session.
import { html } from "../lib.js";
import { figure } from "../parts.js";
import { go, pageHref, sessionHref } from "../router.js";
import { usage as words } from "../words/pages.js";
import { Bars } from "./bars.js";
import { Pending, useData } from "./data.js";
import { useFeed } from "./feed.js";
import { Choice, Nothing } from "./kit.js";

/** @typedef {{steps: number, prompt_tokens: number, completion_tokens: number, cached_tokens: number}} Spent */
/** @typedef {{range: string, totals: Spent & {sessions: number}, by_day: (Spent & {day: string})[], by_model: (Spent & {model: string})[],
 *   by_session: (Spent & {session: string, title: string})[]}} Usage */

const RANGES = Object.entries(words.ranges).map(([value, label]) => ({ value, label }));
const SHOWN = 20;

/** @param {import("../panels.js").PanelProps} props `rest` is the range */
export function Panel({ rest }) {
  const range = RANGES.some(({ value }) => value === rest) ? rest : "7d";
  const given = useData(`/api/usage?range=${range}`, { keep: true });
  useFeed((event) => event.type === "step.finished" && given.reload(), given.reload);
  const usage = /** @type {Usage | null} */ (given.data);
  const choose = (/** @type {string} */ value) => go(pageHref("usage", value));
  return html`<div class="row filters"><${Choice} label=${words.range} options=${RANGES} value=${range} choose=${choose} /></div>
    <${Pending} given=${given} what=${words.what} />
    ${usage && (usage.totals.steps ? html`<${Figures} usage=${usage} />` : html`<${Nothing} icon="chart" title=${words.none}>
      ${range === "all" ? words.noneAll : words.noneRange}</>`)}`;
}

/** @param {{usage: Usage}} props */
function Figures({ usage }) {
  const { totals, by_day, by_model, by_session } = usage;
  const share = totals.prompt_tokens ? words.cachedShare(Math.round((totals.cached_tokens / totals.prompt_tokens) * 100)) : words.cachedAbout;
  const sessions = by_session.slice(0, SHOWN).map((row) => {
    return { ...row, key: row.session, name: html`<a href=${sessionHref(row.session)}>${row.title || row.session}</a>` };
  });
  return html`<dl class="totals">
      ${total(words.input, totals.prompt_tokens, words.inputAbout)}${total(words.output, totals.completion_tokens, words.outputAbout)}
      ${total(words.cached, totals.cached_tokens, share)}
      ${total(words.calls, totals.steps, words.callsAbout(figure(totals.sessions), totals.sessions === 1))}</dl>
    <${Bars} days=${by_day} />
    <${Spending} title=${words.byDay} head=${words.day} rows=${[...by_day].reverse().map((row) => ({ ...row, key: row.day, name: dayOf(row.day) }))} />
    <${Spending} title=${words.byModel} head=${words.model} rows=${by_model.map((row) => ({ ...row, key: row.model, name: row.model || words.noName }))} />
    <${Spending} title=${words.bySession} head=${words.session} rows=${sessions} />
    ${by_session.length > SHOWN && html`<p class="small quiet">${words.most(SHOWN, by_session.length)}</p>`}
    <p class="small quiet">${words.deleted}</p>`;
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
    <div class="table-wrap" tabindex="0" role="region" aria-label=${words.table(title)}><table class="table">
    <thead><tr><th scope="col">${head}</th><th scope="col" class="number">${words.callsShort}</th>
      <th scope="col" class="number">${words.inputShort}</th><th scope="col" class="number">${words.cachedShort}</th><th scope="col" class="number">${words.outputShort}</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.key}><th scope="row" class="name">${row.name}</th>
      <td class="number">${figure(row.steps)}</td><td class="number">${figure(row.prompt_tokens)}</td>
      <td class="number">${figure(row.cached_tokens)}</td><td class="number">${figure(row.completion_tokens)}</td></tr>`)}</tbody></table></div></section>`;
}
