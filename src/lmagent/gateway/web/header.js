// @ts-check
// The line above a conversation: its title, state, permission mode, model, and the panels.
import { get, sessionPath } from "./session/api.js";
import { Icon } from "./icons.js";
import { drawn, html, signal, useEffect, useState } from "./lib.js";
import { readAgain } from "./session/pace.js";
import { panelsAt } from "./panels.js";
import { onEscape, DrawerButton, figure, late, Popup, Square, useElapsed, useWindowIs } from "./parts.js";
import { go, route, sessionHref } from "./router.js";
import { me } from "./session/state.js";
import { statusOf } from "./session/status.js";
import { header as words } from "./words/conversation.js";

/** @typedef {import("./session/session.js").Session} Session */
/** @typedef {import("./session/wire.js").Mode} Mode */
/** @typedef {import("./session/wire.js").Models} Models */
/** @typedef {import("./session/wire.js").Agent} Agent */

const AgentChoices = late("./choices.js", "AgentChoices");
const ModeChoices = late("./choices.js", "ModeChoices");
const ModelChoices = late("./choices.js", "ModelChoices");
const MoreEntries = late("./choices.js", "MoreEntries");
const ContextMap = late("./choices.js", "ContextMap");

/** Options of the next session; empty for the settings' own. */
export const wanted = signal(/** @type {{agent?: string, mode: Mode | "", model: string, options?: import("./session/wire.js").SessionOptions}} */ ({ mode: "", model: "" }));

/** The agents that a session can have. */
export const agents = signal(/** @type {Agent[]} */ ([]));

/** The agent of the next session; undefined before it is known. */
export const agentOf = () => agents.value.find(({ name }) => name === (wanted.value.agent || me.value?.agent));

/** Whether there is a choice of an agent: a session keeps its own. @param {Session | null} session */
export const mayChoose = (session) => !session && agents.value.length > 1;

/** @param {{session: Session | null}} props */
export function Header({ session }) {
  const narrow = useWindowIs("(max-width: 640px)"); // as a phone's: one menu takes the place of the buttons
  useEffect(() => {
    loadModels();
    get("/api/agents").then((found) => (agents.value = found.agents), () => {}); // no choice then
  }, []);
  const agent = agentOf()?.name ?? "";
  const mode = modeOf(session);
  const model = modelOf(session);
  return html`<header class="bar head">
    <${DrawerButton} />
    <div class="grow titles">
      ${session ? html`<${Title} session=${session} />` : html`<h1 class="cut">${words.newSession}</h1>`}
      ${session && html`<div class="under"><${Chip} session=${session} /><${AgentName} session=${session} />${!narrow && html`
        <${Meter} session=${session} /><${Figures} session=${session} />`}</div>`}
    </div>
    <div class="controls">${narrow ? html`<${More} session=${session} />` : html`
      ${mayChoose(session) && html`<${Switch} session=${null} label=${words.agent(agent)} icon="agent" name=${agent} list=${AgentChoices} />`}
      <${Switch} session=${session} label=${words.permissions(mode)} icon="shield" name=${mode} list=${ModeChoices} />
      <${Switch} session=${session} label=${words.model(model || words.serversChoice)} icon="chip" name=${model || words.anyModel} list=${ModelChoices} />
      <${PanelButtons} session=${session?.id ?? ""} />`}
    </div>
  </header>`;
}

/** One function for all drawings: another one would take the focus with each. @param {HTMLElement | null} field */
export const focusOnce = (field) => field?.focus();

/** @param {{session: Session}} props */
function Title({ session }) {
  const [editing, setEditing] = useState(false);
  const title = session.view.value.title || words.untitled;
  const close = () => {
    setEditing(false);
    drawn(() => /** @type {HTMLElement | null} */ (document.querySelector("h1 .title"))?.focus());
  };
  const save = async (/** @type {any} */ event) => {
    event.preventDefault();
    const text = new FormData(event.target).get("title")?.toString().trim() ?? "";
    if (!text || text === title || (await session.command({ type: "rename", title: text }))) close();
  };
  if (!editing) {
    return html`<h1 class="cut"><button class="title" title=${words.rename} onClick=${() => setEditing(true)}>${title}</button></h1>`;
  }
  return html`<form class="row" onSubmit=${save} onKeyDown=${onEscape(close)}>
    <input class="field grow" name="title" aria-label=${words.title} defaultValue=${title} maxlength="200" ref=${focusOnce} />
    <button class="button">${words.rename}</button></form>`;
}

/** @param {{session: Session}} props */
function Chip({ session }) {
  const elapsed = useElapsed(session.since.value);
  const { kind, words: state, detail } = statusOf(session.view.value, elapsed, session.retry.value);
  return html`<span class=${`chip ${kind}`} data-state=${kind}><span class="dot"></span><span class="cut">${state}</span>${detail &&
    html`<span class="detail">${detail}</span>`}</span>`;
}

/** The agent, where it is another one than that of new sessions. @param {{session: Session}} props */
function AgentName({ session }) {
  const { agent } = session.view.value;
  return agent && agent !== me.value?.agent && html`<span class="small quiet cut" title=${words.agent(agent)}>${agent}</span>`;
}

/** @param {{session: Session}} props */
function Figures({ session }) {
  const { totals, pace } = session.view.value;
  const parts = [];
  if (totals.prompt && totals.cached) parts.push(words.cache(Math.round((totals.cached / totals.prompt) * 100)));
  if (pace.write_per_s) parts.push(words.speed(Math.round(pace.write_per_s)));
  if (readAgain(pace)) parts.push(words.reread(figure(readAgain(pace))));
  return parts.length ? html`<p class="figures cut small quiet">${parts.join(" · ")}</p>` : null;
}

/** @param {number} used @param {number} window */
export const contextLabel = (used, window) => (window ? words.context(Math.round((used / window) * 100), figure(window)) : words.contextOpen(figure(used)));

/** How full the window is, as a bar that opens to what fills it. @param {{session: Session}} props */
function Meter({ session }) {
  const used = session.view.value.totals.context;
  const window = useWindow(session);
  if (!used) return null;
  const percent = window ? Math.round((used / window) * 100) : 0;
  const face = window
    ? html`<svg class="meter" viewBox="0 0 40 8" aria-hidden="true"><rect class="rail" width="40" height="8" rx="4" />
        <rect class=${percent >= 80 ? "fill high" : "fill"} width=${Math.max(2, Math.min(40, percent * 0.4))} height="8" rx="4" /></svg>
        <span class="small quiet">${percent} %</span>`
    : html`<span class="small quiet">${words.tokens(figure(used))}</span>`;
  return html`<${Popup} label=${contextLabel(used, window)} face=${face} kind="button plain meter-button">
    ${(/** @type {() => void} */ close) => html`<${ContextMap} session=${session} close=${close} />`}</>`;
}

/** @param {Session | null} session @returns {Mode} */
export const modeOf = (session) => session?.view.value.mode ?? (wanted.value.mode || agentOf()?.mode || me.value?.mode || "normal");

/** What models there are; null before it is known. */
export const models = signal(/** @type {Models | null} */ (null));
/** Why the model server does not answer; empty where it does. */
export const modelsProblem = signal("");

/** Ask what models there are. */
export async function loadModels() {
  try {
    models.value = await get("/api/models");
    modelsProblem.value = "";
  } catch (error) {
    modelsProblem.value = /** @type {import("./session/api.js").ApiError} */ (error).words;
  }
}

/** The window that is served for the session that is shown, where the list of models does not tell. */
const served = signal({ session: "", model: "", window: 0 });

/** Tokens that the window of a session's model holds; 0 before it is known. @param {Session} session */
export function useWindow({ id, view }) {
  const { model, totals } = view.value;
  const listed = models.value?.models.find((row) => row.id === model)?.context ?? 0;
  const wanted = models.value !== null && !listed && totals.context > 0;
  useEffect(() => {
    if (!wanted || (served.peek().session === id && served.peek().model === model)) return;
    served.value = { session: id, model, window: 0 };
    get(sessionPath(id, "/context")).then(({ window }) => (served.value = { session: id, model, window }), () => {}); // a bar less
  }, [id, model, wanted]);
  return listed || (served.value.session === id && served.value.model === model ? served.value.window : 0);
}

/** @param {Session | null} session */
export const modelOf = (session) => session?.view.value.model || wanted.value.model || agentOf()?.model || models.value?.current || me.value?.model || "";

/** @param {{session: Session | null, label: string, icon: import("./icons.js").IconName, name: string, list: any}} props */
function Switch({ session, label, icon, name, list }) {
  return html`<${Popup} label=${label} face=${html`<${Icon} name=${icon} /><span class="only-wide cut model-name">${name}</span>`}>
    ${(/** @type {() => void} */ close) => html`<${list} session=${session} close=${close} />`}</>`;
}

/** @param {{session: string}} props */
function PanelButtons({ session }) {
  const rows = panelsAt("beside", session);
  const open = route.value.panel;
  const toggle = (/** @type {string} */ id) => go(sessionHref(session, open === id ? "" : id));
  return rows.map((row) => html`<${Square} key=${row.id} icon=${row.icon} label=${row.title} aria-pressed=${open === row.id} onClick=${() => toggle(row.id)} />`);
}

/** All that the header offers, in one menu with names. @param {{session: Session | null}} props */
function More({ session }) {
  return html`<${Popup} label=${words.more} face=${html`<${Icon} name="dots" />`} kind="button plain square">
    ${(/** @type {() => void} */ close) => html`<${MoreEntries} session=${session} close=${close} />`}</>`;
}
