// @ts-check
// Tokens by day as bars. The table below says the same in figures, so to a screen reader this is one picture.
import { html } from "../lib.js";
import { figure } from "../parts.js";
import { usage as words } from "../words/pages.js";

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
export function Bars({ days }) {
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
