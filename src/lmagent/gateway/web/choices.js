// @ts-check
// The content of the header's menus: agents, permission modes, models, and on a phone all of it under one button.
import { get, sessionPath } from "./session/api.js";
import { agentOf, agents, contextLabel, focusOnce, loadModels, mayChoose, modelOf, models, modelsProblem, modeOf, useWindow, wanted } from "./header.js";
import { Icon } from "./icons.js";
import { html, useEffect, useState } from "./lib.js";
import { panelsAt } from "./panels.js";
import { figure } from "./parts.js";
import { go, sessionHref } from "./router.js";
import { complain } from "./session/state.js";
import { busy } from "./session/status.js";
import { header as words } from "./words/conversation.js";

/** @typedef {import("./session/session.js").Session} Session */
/** @typedef {{session: Session | null, close: () => void}} InMenu */

/** @param {{rows: {name: string, about: any}[], current: string, choose: (name: string) => void}} props */
function Choices({ rows, current, choose }) {
  return rows.map(({ name, about }) => html`<button key=${name} class="entry choice" aria-pressed=${name === current} onClick=${() => choose(name)}>
    <span class="tickbox">${name === current && html`<${Icon} name="check" />`}</span>
    <span class="wrap">${name}<br /><span class="small quiet">${about}</span></span></button>`);
}

/** What a choice does: it tells the session, or is kept for the next one. @param {InMenu} props @param {"mode" | "model"} key */
const chooser = ({ session, close }, key) => (/** @type {string} */ chosen) => {
  if (session) session.command({ type: `set_${key}`, [key]: chosen }).catch(complain);
  else wanted.value = { ...wanted.value, [key]: chosen };
  close();
};

/** @param {InMenu} props */
export function ModeChoices(props) {
  const rows = Object.entries(words.modes).map(([name, about]) => ({ name, about }));
  return html`<${Choices} rows=${rows} current=${modeOf(props.session)} choose=${chooser(props, "mode")} />`;
}

/** The agents of the next session; each has a mode and a model of its own. @param {InMenu} props */
export function AgentChoices({ close }) {
  const choose = (/** @type {string} */ agent) => {
    wanted.value = { mode: "", model: "", agent };
    close();
  };
  const rows = agents.value.map(({ name, description }) => ({ name, about: description }));
  return html`<${Choices} rows=${rows} current=${agentOf()?.name ?? ""} choose=${choose} />`;
}

/** @param {InMenu} props */
export function ModelChoices(props) {
  const current = modelOf(props.session);
  const choose = chooser(props, "model");
  const offered = models.value?.models ?? [];
  const rows = offered.map(({ id, loaded, context, vision }) => ({
    name: id,
    about: [loaded && words.loaded, context && words.tokens(figure(context)), vision && words.seesImages].filter(Boolean).join(" · "),
  }));
  return html`
    ${modelsProblem.value && html`<div class="notice warning"><${Icon} name="warning" />${modelsProblem.value}</div>`}
    ${!offered.length && !modelsProblem.value && html`<p class="empty">${words.noModels}</p>`}
    <${Choices} rows=${rows} current=${current} choose=${(/** @type {string} */ name) => (name === current ? props.close() : choose(name))} />
    <button class="entry" onClick=${loadModels}><${Icon} name="refresh" />${words.refresh}</button>`;
}

/** @param {InMenu} props */
export function MoreEntries({ session, close }) {
  const [list, setList] = useState(/** @type {"" | "agent" | "mode" | "model" | "context"} */ (""));
  const id = session?.id ?? "";
  if (list) {
    const Opened = { agent: AgentChoices, mode: ModeChoices, model: ModelChoices, context: ContextMap }[list];
    return html`<button class="entry" key="back" ref=${focusOnce} onClick=${() => setList("")}><${Icon} name="left" />${words.back}</button>
      <${Opened} session=${session} close=${close} />`;
  }
  return html`${panelsAt("beside", id).map((row) => html`<button key=${row.id} class="entry" onClick=${() => (close(), go(sessionHref(id, row.id)))}>
      <${Icon} name=${row.icon} />${row.title}</button>`)}
    ${mayChoose(session) && html`<button class="entry" key="agent" onClick=${() => setList("agent")}><${Icon} name="agent" />
      <span class="cut">${words.agent(agentOf()?.name ?? "")}</span></button>`}
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
