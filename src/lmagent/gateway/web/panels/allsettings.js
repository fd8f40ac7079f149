// @ts-check
// Every setting of lmagent with its value, where that comes from, and what it means; changed where that widens nothing.
import { post } from "../api.js";
import { Icon } from "../icons.js";
import { drawn, html, useId, useState } from "../lib.js";
import { toast } from "../state.js";
import { settings as words } from "../words/settings.js";
import { Pending, Search, useData } from "./data.js";
import { Sure } from "./kit.js";

/** @typedef {{name: string, value: string, origin: string, layer: string, default: string, help: string, allowed: string, kind: string,
 *   choices: string[], changeable: "any" | "stricter" | "no", pending: boolean, yours: boolean}} Row */

export function AllSettings() {
  const [search, setSearch] = useState("");
  const [changedOnly, setChangedOnly] = useState(false);
  const given = useData("/api/settings", { keep: true });
  const all = /** @type {Row[]} */ (given.data?.settings ?? []);
  const looked = search.toLowerCase().split(/\s+/).filter(Boolean);
  const fitting = all.filter((row) => {
    const told = [row.name, row.help, words.origins[row.layer]].join(" ").toLowerCase();
    return looked.every((word) => told.includes(word)) && (!changedOnly || row.layer !== "default");
  });
  return html`<section class="section" aria-label=${words.all}><h2>${words.all}</h2>
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
  </section>`;
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
      setProblem(/** @type {import("../api.js").ApiError} */ (error).words);
    }
  };
  return html`<li class="card setting" aria-label=${row.name}>
    <div class="row"><h3 class="grow wrap"><code>${row.name}</code></h3>
      ${row.pending && html`<span class="chip waiting">${words.pending}</span>`}
      <strong class="wrap value">${said(row, row.value)}</strong>
      ${row.changeable !== "no" && !open && html`<button class="button" data-change=${row.name} aria-label=${words.changeNamed(row.name)}
        onClick=${() => setOpen(true)}><${Icon} name="edit" />${words.change}</button>`}</div>
    <p class="small">${row.help}</p>
    <p class="small quiet row"><span title=${words.from(row.origin)}>${words.origins[row.layer] ?? row.origin}</span>
      ${row.layer !== "default" && html`<span>${words.from(row.origin)}</span>`}
      ${row.value !== row.default && row.kind !== "secret" && html`<span>${words.defaultIs(said(row, row.default))}</span>`}</p>
    ${row.changeable === "no" && html`<p class="small quiet">${words.locked}</p>`}
    ${open && html`<form onSubmit=${(/** @type {any} */ event) => {
      event.preventDefault();
      save(new FormData(event.target).get("value")?.toString() ?? "");
    }}>
      <div class="row"><${Field} row=${row} describedby=${id} wrong=${problem !== ""} />
        <button class="button main">${words.save}</button>
        <button type="button" class="button plain" onClick=${close}>${words.cancel}</button></div>
      <p class="small quiet">${words.allowed(row.allowed)}${row.changeable === "stricter" ? ` ${words.stricterOnly}` : ""}</p>
      <div id=${id} role="alert">${problem && html`<p class="notice error">${problem}</p>`}</div></form>
      ${row.yours && row.changeable === "any" && html`<div><${Sure} label=${words.reset} kind="button plain" question=${words.resetQuestion(said(row, row.default))}
        yes=${words.reset} act=${() => save(null)} /></div>`}`}
  </li>`;
}

/** @param {HTMLElement | null} field */
const focusOnce = (field) => field?.focus();

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
