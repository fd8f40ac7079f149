// @ts-check
// The page's look and behaviour in this browser, the login, the keys, and the settings of lmagent.
import { post } from "../session/api.js";
import { focusOnce } from "../header.js";
import { Icon } from "../icons.js";
import { drawn, html, render, useId, useState } from "../lib.js";
import { logOut } from "../login.js";
import { askToNotify, permission } from "../notify.js";
import { me, setTheme, theme, toast } from "../session/state.js";
import { common } from "../words/conversation.js";
import { keys as labels, settings as words } from "../words/settings.js";
import { lettersOn, setLetters } from "./keys.js";
import { Button, Choice, Pending, Search, Section, Sure, fits, size, useData } from "./kit.js";

const THEMES = Object.entries(words.themes).map(([value, label]) => ({ value, label }));

export function Panel() {
  const here = me.value;
  return html`<div class="settings">
    <${Section} title=${words.colours}>
      <div><${Choice} label=${words.colours} options=${THEMES} value=${theme.value} choose=${setTheme} /></div></>
    <${Section} title=${words.notifications}><${Notifications} /></>
    <${Section} title=${words.keys}>
      <label class="switch"><input type="checkbox" role="switch" checked=${lettersOn.value}
        onChange=${(/** @type {any} */ event) => setLetters(event.target.checked)} />${words.letters}</label>
      <div class="keys-all"><${Keys} /></div></>
    <${Section} title=${words.gateway}>
      <dl class="facts"><dt>${words.workspace}</dt><dd><code>${here?.workspace}</code></dd><dt>${words.server}</dt><dd><code>${here?.endpoint}</code></dd>
        <dt>${words.version}</dt><dd>lmagent ${here?.version}</dd>
        <dt>${words.loggedIn}</dt><dd>${here?.caller === "page" ? words.withPin : words.withToken}</dd></dl>
      ${here?.caller === "page" && html`<div><${Button} icon="out" label=${words.logOut} onClick=${logOut} /></div>`}</>
    <${Identity} />
    <${AllSettings} />
  </div>`;
}

function Notifications() {
  const state = permission.value;
  return html`<p class="quiet" role="status">${words.notificationsSaid[state]}</p>
    ${state === "default" && html`<div><${Button} icon="bell" label=${words.allowNotifications} onClick=${askToNotify} /></div>`}
    ${state === "granted" && html`<p><span class="chip done"><${Icon} name="check" />${words.on}</span></p>`}`;
}

/** The files that each session begins with. */
function Identity() {
  const { data } = useData("/api/identity");
  const files = /** @type {{kind: string, name: string, size: number, advice: string}[]} */ (data?.files ?? []);
  return html`<${Section} title=${words.identity}>
    <p class="quiet">${data && !files.length ? words.noIdentity : words.identityAbout}</p>
    <dl class="facts">${files.map((file) => html`<dt key=${file.name}>${file.kind}</dt><dd><code>${file.name}</code> · ${size(file.size)}
      ${file.advice && html`<p class="needed">${file.advice}</p>`}</dd>`)}
      ${data?.nested.length > 0 && html`<dt>${words.nested}</dt><dd>${data.nested.join(", ")}</dd>`}</dl></>`;
}

/** @typedef {{name: string, value: string, origin: string, layer: string, default: string, help: string, allowed: string, kind: string,
 *   choices: string[], changeable: boolean, pending: boolean, yours: boolean}} Row */

function AllSettings() {
  const [search, setSearch] = useState("");
  const [changedOnly, setChangedOnly] = useState(false);
  const given = useData("/api/settings", { keep: true });
  const all = /** @type {Row[]} */ (given.data?.settings ?? []);
  const fitting = all.filter((row) => fits(search, [row.name, row.help, words.origins[row.layer]]) && (!changedOnly || row.layer !== "default"));
  return html`<${Section} title=${words.all}>
    <${Pending} given=${given} what=${words.what} />
    ${given.data && html`<p class="small quiet">${words.lead(html`<code>${given.data.config_file}</code>`)}</p>
      ${given.data.warnings.length > 0 && html`<div class="notice warning"><${Icon} name="warning" /><div class="grow"><strong>${words.warnings}</strong>
        <ul class="small">${given.data.warnings.map((/** @type {{text: string, fix: string}} */ one) => html`<li key=${one.text}>${one.text}${
          one.fix && html`<br /><span class="quiet">${one.fix}</span>`}</li>`)}</ul></div></div>`}
      <div class="row filters"><${Search} label=${words.search} value=${search} change=${setSearch} />
        <label class="switch"><input type="checkbox" role="switch" checked=${changedOnly}
          onChange=${(/** @type {any} */ event) => setChangedOnly(event.target.checked)} />${words.onlyChanged}</label></div>
      <p class="small quiet" role="status">${fitting.length ? words.count(fitting.length, all.length) : words.noResults(search)}</p>
      <ul class="bare cards">${fitting.map((row) => html`<${Setting} key=${row.name} row=${row} changed=${given.reload} />`)}</ul>`}
  </>`;
}

/** A value as the page shows it. @param {Row} row @param {string} value */
function said(row, value) {
  if (value === "none") return words.none;
  if (row.kind === "switch" || row.kind === "presence") return value === "true" ? words.yes : words.no;
  return value;
}

/** @param {{row: Row, changed: () => void}} props */
function Setting({ row, changed }) {
  const [open, setOpen] = useState(false);
  const [problem, setProblem] = useState("");
  const id = useId();
  const close = () => {
    setOpen(false);
    setProblem("");
    drawn(() => /** @type {HTMLElement | null} */ (document.querySelector(`[data-change="${row.name}"]`))?.focus());
  };
  const save = async (/** @type {string | null} */ value) => {
    try {
      const { effect, hidden_by } = await post("/api/settings", { name: row.name, value });
      toast(words.saved[/** @type {"sessions" | "restart" | "hidden"} */ (effect)](row.name, hidden_by));
      close();
      changed();
    } catch (error) {
      setProblem(/** @type {import("../session/api.js").ApiError} */ (error).words);
    }
  };
  return html`<li class="card setting" aria-label=${row.name}>
    <div class="row"><h3 class="grow wrap"><code>${row.name}</code></h3>
      ${row.pending && html`<span class="chip waiting">${words.pending}</span>`}
      <strong class="wrap value">${said(row, row.value)}</strong>
      ${row.changeable && !open && html`<${Button} icon="edit" label=${words.change} data-change=${row.name} aria-label=${words.changeNamed(row.name)} onClick=${() => setOpen(true)} />`}</div>
    <p class="small">${row.help}</p>
    <p class="small quiet row"><span title=${words.from(row.origin)}>${words.origins[row.layer] ?? row.origin}</span>
      ${row.layer !== "default" && html`<span>${words.from(row.origin)}</span>`}
      ${row.value !== row.default && row.kind !== "secret" && html`<span>${words.defaultIs(said(row, row.default))}</span>`}</p>
    ${!row.changeable && html`<p class="small quiet">${words.locked}</p>`}
    ${open && html`<form onSubmit=${(/** @type {any} */ event) => {
      event.preventDefault();
      save(new FormData(event.target).get("value")?.toString() ?? "");
    }}>
      <div class="row"><${Field} row=${row} describedby=${id} wrong=${problem !== ""} />
        <button class="button main">${words.save}</button>
        <button type="button" class="button plain" onClick=${close}>${common.cancel}</button></div>
      <p class="small quiet">${words.allowed(row.allowed)}</p>
      <div id=${id} role="alert">${problem && html`<p class="notice error">${problem}</p>`}</div></form>
      ${row.yours && html`<div><${Sure} label=${words.reset} kind="button plain" question=${words.resetQuestion(said(row, row.default))}
        yes=${words.reset} act=${() => save(null)} /></div>`}`}
  </li>`;
}


/** @param {{row: Row, describedby: string, wrong: boolean}} props */
function Field({ row, describedby, wrong }) {
  const optional = row.allowed.endsWith(", or none");
  const common = { name: "value", "aria-label": row.name, "aria-describedby": describedby, "aria-invalid": wrong, ref: focusOnce };
  const choices = row.kind === "choice" ? row.choices : row.kind === "switch" || row.kind === "presence" ? ["true", "false"] : null;
  if (choices) {
    return html`<select class="field grow" ...${common} defaultValue=${row.value}>
      ${[...choices, ...(optional ? ["none"] : [])].map((value) => html`<option key=${value} value=${value} selected=${value === row.value}>${said(row, value)}</option>`)}</select>`;
  }
  const numeric = row.kind === "integer" || row.kind === "number";
  return html`<input class="field grow" ...${common} defaultValue=${row.value === "(none)" ? "" : row.value} spellcheck=${false} autocomplete="off"
    inputmode=${numeric && !optional ? "decimal" : undefined} />`;
}

/** The keys as lists. */
export function Keys() {
  return labels.groups.map(([title, keys]) => html`<section key=${title} aria-label=${title}><h3>${title}</h3>
    <dl class="facts keys">${keys.map(([key, does]) => html`
      <dt key=${key}>${key.split(" ").map((one) => html`<kbd>${one}</kbd> `)}</dt><dd>${does}</dd>`)}</dl></section>`);
}

/** Show them until they are closed; then the focus is where it was. */
export function openHelp() {
  if (document.querySelector("dialog.help")) return;
  const place = document.createElement("div");
  document.body.append(place);
  const gone = () => {
    render(null, place);
    place.remove();
  };
  const shown = (/** @type {HTMLDialogElement | null} */ dialog) => dialog && !dialog.open && dialog.showModal();
  render(html`<dialog class="help card" aria-label=${labels.heading} ref=${shown} onClose=${gone}>
    <form method="dialog" class="row"><h2 class="grow">${labels.heading}</h2><button class="button" autofocus>${labels.close}</button></form>
    <${Keys} /><p class="small quiet">${labels.off}</p></dialog>`, place);
}
