// @ts-check
// The line above a conversation: its title, what it is at, how permissions and the model stand, and the panels.
import { get } from "./api.js";
import { Icon } from "./icons.js";
import { drawn, html, signal, useEffect, useState } from "./lib.js";
import { whySlow } from "./pace.js";
import { PANELS } from "./panels.js";
import { DrawerButton, figure, Popup, useElapsed } from "./parts.js";
import { go, route, sessionHref } from "./router.js";
import { complain, me } from "./state.js";
import { statusOf } from "./status.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./wire.js").Mode} Mode */
/** @typedef {import("./wire.js").Models} Models */

/** What a session that does not exist yet shall begin with; empty for what the gateway takes by itself. */
export const wanted = signal(/** @type {{mode: Mode | "", model: string, options?: import("./wire.js").SessionOptions}} */ ({ mode: "", model: "" }));

/** @param {{session: Session | null}} props */
export function Header({ session }) {
  return html`<header class="bar head">
    <${DrawerButton} />
    <div class="grow titles">
      ${session ? html`<${Title} session=${session} />` : html`<h1 class="cut">New session</h1>`}
      ${session && html`<${Figures} session=${session} />`}
    </div>
    <div class="controls">
      ${session && html`<${Chip} session=${session} />`}
      <${ModeSwitch} session=${session} /><${ModelSwitch} session=${session} />
      <${PanelButtons} session=${session?.id ?? ""} />
    </div>
  </header>`;
}

/** One function for all drawings: another one would take the focus with each. @param {HTMLInputElement | null} field */
const focusOnce = (field) => field?.focus();

/** @param {{session: Session}} props */
function Title({ session }) {
  const [editing, setEditing] = useState(false);
  const title = session.view.value.title || "Untitled";
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
    return html`<h1 class="cut"><button class="title" title="Rename" onClick=${() => setEditing(true)}>${title}</button></h1>`;
  }
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    close();
  };
  return html`<form class="row" onSubmit=${save} onKeyDown=${pressed}>
    <input class="field grow" name="title" aria-label="Title" defaultValue=${title} maxlength="200" ref=${focusOnce} />
    <button class="button">Rename</button></form>`;
}

/** @param {{session: Session}} props */
function Chip({ session }) {
  const elapsed = useElapsed(session.since.value);
  const { kind, words, detail } = statusOf(session.view.value, elapsed, session.retry.value);
  return html`<span class=${`chip ${kind}`} data-state=${kind}><span class="dot"></span>${words}${detail &&
    html`<span class="detail">${detail}</span>`}</span>`;
}

/** @param {{session: Session}} props */
function Figures({ session }) {
  const { totals, pace, model } = session.view.value;
  const window = windowOf(model);
  const parts = [];
  if (totals.context) parts.push(window ? `${Math.round((totals.context / window) * 100)} % of ${figure(window)} tokens` : `${figure(totals.context)} tokens`);
  if (totals.prompt && totals.cached) parts.push(`cache ${Math.round((totals.cached / totals.prompt) * 100)} %`);
  if (pace.write_per_s) parts.push(`${pace.write_per_s} tokens/s`);
  const slow = whySlow(pace);
  if (slow) parts.push(slow);
  return parts.length ? html`<p class="figures cut small quiet">${parts.join(" · ")}</p>` : null;
}

const MODES = /** @type {const} */ ({
  manual: "asks before everything",
  normal: "asks before changes and commands",
  auto: "asks nothing; rules that deny still hold",
});

/** @param {{session: Session | null}} props */
function ModeSwitch({ session }) {
  const mode = session?.view.value.mode ?? (wanted.value.mode || me.value?.mode || "normal");
  const choose = (/** @type {Mode} */ chosen) => {
    if (session) session.command({ type: "set_mode", mode: chosen });
    else wanted.value = { ...wanted.value, mode: chosen };
  };
  return html`<${Popup} label=${`Permissions: ${mode}`} face=${html`<${Icon} name="shield" /><span class="only-wide">${mode}</span>`}>
    ${(/** @type {() => void} */ close) => /** @type {Mode[]} */ (Object.keys(MODES)).map((name) => html`<button key=${name} class="entry choice"
      aria-pressed=${name === mode} onClick=${() => (choose(name), close())}>
      <span class="tickbox">${name === mode && html`<${Icon} name="check" />`}</span>
      <span>${name}<br /><span class="small quiet">${MODES[name]}</span></span></button>`)}
  </>`;
}

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
    const { message, fix } = /** @type {import("./api.js").ApiError} */ (error);
    modelsProblem.value = fix ? `${message}: ${fix}` : message;
  }
}

/** Tokens that a model's window holds; 0 where that is not known. @param {string} name */
function windowOf(name) {
  return models.value?.models.find((model) => model.id === name)?.context ?? 0;
}

/** @param {{session: Session | null}} props */
function ModelSwitch({ session }) {
  const model = session?.view.value.model || wanted.value.model || models.value?.current || me.value?.model || "";
  useEffect(() => {
    loadModels();
  }, []);
  const choose = (/** @type {string} */ chosen) => {
    if (session) session.command({ type: "set_model", model: chosen }).catch(complain);
    else wanted.value = { ...wanted.value, model: chosen };
  };
  const offered = models.value?.models ?? [];
  return html`<${Popup} label=${`Model: ${model || "as the server chooses"}`}
    face=${html`<${Icon} name="chip" /><span class="only-wide cut model-name">${model || "any model"}</span>`}>
    ${(/** @type {() => void} */ close) => html`
      ${modelsProblem.value && html`<div class="notice warning"><${Icon} name="warning" />${modelsProblem.value}</div>`}
      ${!offered.length && !modelsProblem.value && html`<p class="empty">The server lists no models.</p>`}
      ${offered.map((row) => html`<button key=${row.id} class="entry choice" aria-pressed=${row.id === model}
        onClick=${() => (choose(row.id), close())}>
        <span class="tickbox">${row.id === model && html`<${Icon} name="check" />`}</span>
        <span class="wrap">${row.id}<br /><span class="small quiet">${[row.loaded === true && "loaded",
          row.context && `${figure(row.context)} tokens`, row.vision && "sees pictures"].filter(Boolean).join(" · ")}</span></span></button>`)}
      <button class="entry" onClick=${loadModels}><${Icon} name="refresh" />Ask again</button>`}
  </>`;
}

/** @param {{session: string}} props */
function PanelButtons({ session }) {
  const rows = PANELS.filter((row) => row.place === "beside" && (row.shown?.({ session, rest: "" }) ?? true));
  const open = route.value.panel;
  const toggle = (/** @type {string} */ id) => go(sessionHref(session, open === id ? "" : id));
  return rows.map((row) => html`<button key=${row.id} class="button plain square" aria-label=${row.title} title=${row.title}
    aria-pressed=${open === row.id} onClick=${() => toggle(row.id)}><${Icon} name=${row.icon} /></button>`);
}
