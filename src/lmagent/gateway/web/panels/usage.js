// @ts-check
// Usage: tokens and model calls by day, by model and by session.
import { html } from "../lib.js";
import { figure } from "../parts.js";
import { go, pageHref, sessionHref } from "../router.js";
import { usage as words } from "../words/pages.js";
import { Choice, Nothing, Pending, Section, Table, useData, useFeed } from "./kit.js";

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
function dayOf(day) {
  return new Date(`${day}T12:00`).toLocaleDateString([], { weekday: "short", month: "short", day: "numeric" });
}

/** @param {{title: string, head: string, rows: (Spent & {key: string, name: any})[]}} props */
function Spending({ title, head, rows }) {
  return html`<${Section} title=${title}><${Table} label=${words.table(title)}>
    <thead><tr><th scope="col">${head}</th><th scope="col" class="number">${words.callsShort}</th>
      <th scope="col" class="number">${words.inputShort}</th><th scope="col" class="number">${words.cachedShort}</th><th scope="col" class="number">${words.outputShort}</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.key}><th scope="row" class="name">${row.name}</th>
      <td class="number">${figure(row.steps)}</td><td class="number">${figure(row.prompt_tokens)}</td>
      <td class="number">${figure(row.cached_tokens)}</td><td class="number">${figure(row.completion_tokens)}</td></tr>`)}</tbody></></>`;
}

/** @typedef {{day: string, prompt_tokens: number, completion_tokens: number, cached_tokens: number}} Day */

const HEIGHT = 140;
const WIDTH = 640;
const MOST = 62;
const DAY = 86_400_000;

/** Every day from the first to the last, those without use as well, but not more than fit. @param {Day[]} days @returns {Day[]} */
export function filled(days) {
  const first = days[0];
  const last = days.at(-1);
  if (!first || !last) return [];
  const known = new Map(days.map((day) => [day.day, day]));
  const to = Date.parse(last.day);
  /** @type {Day[]} */
  const all = [];
  for (let at = Math.max(Date.parse(first.day), to - (MOST - 1) * DAY); at <= to; at += DAY) {
    const day = new Date(at).toISOString().slice(0, 10);
    all.push(known.get(day) ?? { day, prompt_tokens: 0, completion_tokens: 0, cached_tokens: 0 });
  }
  return all;
}

/** @param {{days: Day[]}} props */
function Bars({ days }) {
  const all = filled(days);
  const sum = (/** @type {Day} */ day) => day.prompt_tokens + day.completion_tokens;
  const highest = Math.max(1, ...all.map(sum));
  const step = WIDTH / all.length;
  const wide = Math.min(48, step * 0.72);
  const tall = (/** @type {number} */ tokens) => (tokens / highest) * HEIGHT;
  const peak = all.find((day) => sum(day) === highest);
  const told = words.chart(all[0]?.day ?? "", all.at(-1)?.day ?? "", figure(highest), peak?.day ?? "");
  return html`<figure class="chart"><svg viewBox=${`0 0 ${WIDTH} ${HEIGHT + 2}`} role="img" aria-label=${told} preserveAspectRatio="none">
      <line class="rule" x1="0" x2=${WIDTH} y1=${HEIGHT + 0.5} y2=${HEIGHT + 0.5} />
      ${all.map((day, index) => {
        const x = index * step + (step - wide) / 2;
        const fresh = tall(day.prompt_tokens - day.cached_tokens);
        const cached = tall(day.cached_tokens);
        const written = tall(day.completion_tokens);
        return html`<g key=${day.day}><title>${words.bar(day.day, figure(sum(day)))}</title>
          <rect class="cached" x=${x} width=${wide} y=${HEIGHT - cached} height=${cached} />
          <rect class="fresh" x=${x} width=${wide} y=${HEIGHT - cached - fresh} height=${fresh} />
          <rect class="written" x=${x} width=${wide} y=${HEIGHT - cached - fresh - written} height=${written} /></g>`;
      })}</svg>
    <div class="ends small quiet" aria-hidden="true"><span>${all[0]?.day}</span><span>${words.highest(figure(highest))}</span><span>${all.at(-1)?.day}</span></div>
    <figcaption class="row small quiet"><span class="key cached">${words.cached}</span>
      <span class="key fresh">${words.input}</span><span class="key written">${words.output}</span></figcaption></figure>`;
}
