// @ts-check
// The content of the header's menus: permission modes, models, and on a phone all of it under one button.
import { get, sessionPath } from "./session/api.js";
import { contextLabel, focusOnce, loadModels, modelOf, models, modelsProblem, modeOf, useWindow, wanted } from "./header.js";
import { Icon } from "./icons.js";
import { html, useEffect, useState } from "./lib.js";
import { panelsAt } from "./panels.js";
import { figure } from "./parts.js";
import { go, sessionHref } from "./router.js";
import { complain } from "./session/state.js";
import { busy } from "./session/status.js";
import { header as words } from "./words/conversation.js";

/** @typedef {import("./session/session.js").Session} Session */
/** @typedef {import("./session/wire.js").Mode} Mode */
/** @typedef {{session: Session | null, close: () => void}} InMenu */

/** @param {InMenu} props */
export function ModeChoices({ session, close }) {
  const mode = modeOf(session);
  const choose = (/** @type {Mode} */ chosen) => {
    if (session) session.command({ type: "set_mode", mode: chosen });
    else wanted.value = { ...wanted.value, mode: chosen };
  };
  return /** @type {Mode[]} */ (Object.keys(words.modes)).map((name) => html`<button key=${name} class="entry choice"
    aria-pressed=${name === mode} onClick=${() => (choose(name), close())}>
    <span class="tickbox">${name === mode && html`<${Icon} name="check" />`}</span>
    <span>${name}<br /><span class="small quiet">${words.modes[name]}</span></span></button>`);
}

/** @param {InMenu} props */
export function ModelChoices({ session, close }) {
  const model = modelOf(session);
  const choose = (/** @type {string} */ chosen) => {
    if (chosen === model) return;
    if (session) session.command({ type: "set_model", model: chosen }).catch(complain);
    else wanted.value = { ...wanted.value, model: chosen };
  };
  const offered = models.value?.models ?? [];
  return html`
    ${modelsProblem.value && html`<div class="notice warning"><${Icon} name="warning" />${modelsProblem.value}</div>`}
    ${!offered.length && !modelsProblem.value && html`<p class="empty">${words.noModels}</p>`}
    ${offered.map((row) => html`<button key=${row.id} class="entry choice" aria-pressed=${row.id === model}
      onClick=${() => (choose(row.id), close())}>
      <span class="tickbox">${row.id === model && html`<${Icon} name="check" />`}</span>
      <span class="wrap">${row.id}<br /><span class="small quiet">${[row.loaded === true && words.loaded,
        row.context && words.tokens(figure(row.context)), row.vision && words.seesImages].filter(Boolean).join(" · ")}</span></span></button>`)}
    <button class="entry" onClick=${loadModels}><${Icon} name="refresh" />${words.refresh}</button>`;
}

/** @param {InMenu} props */
export function MoreEntries({ session, close }) {
  const [list, setList] = useState(/** @type {"" | "mode" | "model" | "context"} */ (""));
  const id = session?.id ?? "";
  if (list) {
    const Choices = { mode: ModeChoices, model: ModelChoices, context: ContextMap }[list];
    return html`<button class="entry" key="back" ref=${focusOnce} onClick=${() => setList("")}><${Icon} name="left" />${words.back}</button>
      <${Choices} session=${session} close=${close} />`;
  }
  return html`${panelsAt("beside", id).map((row) => html`<button key=${row.id} class="entry" onClick=${() => (close(), go(sessionHref(id, row.id)))}>
      <${Icon} name=${row.icon} />${row.title}</button>`)}
    <button class="entry" key="mode" onClick=${() => setList("mode")}><${Icon} name="shield" />${words.permissions(modeOf(session))}</button>
    <button class="entry" key="model" onClick=${() => setList("model")}><${Icon} name="chip" />
      <span class="cut">${words.model(modelOf(session) || words.serversChoice)}</span></button>
    ${session && html`<${ContextEntry} key="context" session=${session} open=${() => setList("context")} />`}`;
}

/** @param {{session: Session, open: () => void}} props */
function ContextEntry({ session, open }) {
  const used = session.view.value.totals.context;
  const window = useWindow(session);
  return used ? html`<button class="entry" onClick=${open}><${Icon} name="chart" />${contextLabel(used, window)}</button>` : null;
}

/** @typedef {{parts: {name: string, tokens: number}[], used: number, window: number, trigger: number, compactions: number}} Use */

const WIDE = 320;

/** @param {{session: import("./session/session.js").Session, close: () => void}} props */
export function ContextMap({ session, close }) {
  const [use, setUse] = useState(/** @type {Use | null} */ (null));
  const [problem, setProblem] = useState("");
  const { totals } = session.view.value;
  useEffect(() => {
    const stop = new AbortController();
    get(sessionPath(session.id, "/context"), stop.signal).then(setUse, (error) => stop.signal.aborted || setProblem(error.words));
    return () => stop.abort();
  }, [session, totals.context]);
  if (problem) return html`<p class="empty" role="alert">${problem}</p>`;
  if (!use) return null;
  const shorten = () => {
    session.command({ type: "compact" });
    close();
  };
  const share = (/** @type {number} */ tokens) => Math.round((tokens / use.window) * 100);
  return html`<div class="context"><h2>${words.contextTitle}</h2>
    <${Map} use=${use} />
    <p class="small">${words.used(figure(use.used), figure(use.window))}</p>
    <table class="small"><tbody>
      ${use.parts.map(({ name, tokens }) => html`<tr key=${name}><th scope="row"><span class=${`swatch part-${name}`}></span>${words.parts[name] ?? name}</th>
        <td>${figure(tokens)}</td><td class="quiet">${share(tokens)} %</td></tr>`)}
      <tr><th scope="row"><span class="swatch"></span>${words.free}</th><td>${figure(Math.max(0, use.window - use.used))}</td>
        <td class="quiet">${share(Math.max(0, use.window - use.used))} %</td></tr>
    </tbody></table>
    <p class="small quiet">${words.cut(figure(use.trigger), share(use.trigger))} ${use.compactions > 0 && words.cuts(use.compactions)}</p>
    <button class="button" disabled=${busy(session.view.value)} onClick=${shorten}>${words.shorten}</button></div>`;
}

/** The same as the table, as a bar; its line is the place of the next cut. @param {{use: Use}} props */
function Map({ use }) {
  let at = 0;
  const wide = (/** @type {number} */ tokens) => (tokens / use.window) * WIDE;
  return html`<svg class="map" viewBox=${`0 0 ${WIDE} 16`} aria-hidden="true" preserveAspectRatio="none">
    <rect class="rail" width=${WIDE} height="16" />
    ${use.parts.map(({ name, tokens }) => {
      const x = at;
      at += wide(tokens);
      return html`<rect key=${name} class=${`part-${name}`} x=${x} width=${wide(tokens)} height="16" />`;
    })}
    <line class="cut-line" x1=${wide(use.trigger)} x2=${wide(use.trigger)} y1="0" y2="16" /></svg>`;
}
