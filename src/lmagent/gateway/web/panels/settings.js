// @ts-check
// How the page looks and behaves in this browser, who is logged in, and the settings of lmagent.
import { Icon } from "../icons.js";
import { html } from "../lib.js";
import { logOut } from "../login.js";
import { permission } from "../notify.js";
import { me, toast } from "../state.js";
import { setTheme, theme } from "../theme.js";
import { settings as words } from "../words/settings.js";
import { AllSettings } from "./allsettings.js";
import { Keys } from "./help.js";
import { lettersOn, setLetters } from "./keys.js";
import { Choice } from "./kit.js";

const THEMES = Object.entries(words.themes).map(([value, label]) => ({ value, label }));

export function Panel() {
  const here = me.value;
  return html`<div class="settings">
    <section class="section" aria-label=${words.colours}><h2>${words.colours}</h2>
      <div><${Choice} label=${words.colours} options=${THEMES} value=${theme.value} choose=${setTheme} /></div></section>
    <section class="section" aria-label=${words.notifications}><h2>${words.notifications}</h2><${Notifications} /></section>
    <section class="section" aria-label=${words.keys}><h2>${words.keys}</h2>
      <label class="switch"><input type="checkbox" role="switch" checked=${lettersOn.value}
        onChange=${(/** @type {any} */ event) => setLetters(event.target.checked)} />${words.letters}</label>
      <div class="keys-all"><${Keys} /></div></section>
    <section class="section" aria-label=${words.gateway}><h2>${words.gateway}</h2>
      <dl class="facts"><dt>${words.workspace}</dt><dd><code>${here?.workspace}</code></dd><dt>${words.server}</dt><dd><code>${here?.endpoint}</code></dd>
        <dt>${words.version}</dt><dd>lmagent ${here?.version}</dd>
        <dt>${words.loggedIn}</dt><dd>${here?.caller === "page" ? words.withPin : words.withToken}</dd></dl>
      ${here?.caller === "page" && html`<div><button class="button" onClick=${logOut}><${Icon} name="out" />${words.logOut}</button></div>`}</section>
    <${AllSettings} />
  </div>`;
}

function Notifications() {
  const state = permission.value;
  const ask = async () => {
    permission.value = await Notification.requestPermission();
    toast(permission.value === "granted" ? words.notificationsOn : words.notificationsOff);
  };
  return html`<p class="quiet" role="status">${words.notificationsSaid[state]}</p>
    ${state === "default" && html`<div><button class="button" onClick=${ask}><${Icon} name="bell" />${words.allowNotifications}</button></div>`}
    ${state === "granted" && html`<p><span class="chip done"><${Icon} name="check" />${words.on}</span></p>`}`;
}
