// @ts-check
// How the page looks and behaves in this browser, and who is logged in.
import { Icon } from "../icons.js";
import { html } from "../lib.js";
import { logOut } from "../login.js";
import { permission } from "../notify.js";
import { me, toast } from "../state.js";
import { setTheme, theme } from "../theme.js";
import { Keys } from "./help.js";
import { lettersOn, setLetters } from "./keys.js";
import { Choice } from "./kit.js";

const THEMES = [{ value: "system", label: "As the system" }, { value: "light", label: "Light" }, { value: "dark", label: "Dark" }];

export function Panel() {
  const here = me.value;
  return html`<div class="settings">
    <section class="section" aria-label="Colours"><h2>Colours</h2>
      <div><${Choice} label="Colours" options=${THEMES} value=${theme.value} choose=${setTheme} /></div></section>
    <section class="section" aria-label="Notifications"><h2>Notifications</h2><${Notifications} /></section>
    <section class="section" aria-label="Keys"><h2>Keys</h2>
      <label class="switch"><input type="checkbox" role="switch" checked=${lettersOn.value}
        onChange=${(/** @type {any} */ event) => setLetters(event.target.checked)} />
        Single letters do something where nobody writes</label>
      <div class="keys-all"><${Keys} /></div></section>
    <section class="section" aria-label="This gateway"><h2>This gateway</h2>
      <dl class="facts"><dt>Workspace</dt><dd><code>${here?.workspace}</code></dd><dt>Model server</dt><dd><code>${here?.endpoint}</code></dd>
        <dt>Version</dt><dd>lmagent ${here?.version}</dd>
        <dt>Logged in</dt><dd>${here?.caller === "page" ? "with the PIN or a link, in this browser" : "with the token"}</dd></dl>
      ${here?.caller === "page" && html`<div><button class="button" onClick=${logOut}><${Icon} name="out" />Log out</button></div>`}</section>
  </div>`;
}

const SAID = /** @type {const} */ ({
  granted: `They come when a session waits for you or is finished, while this page is not looked at. The browser's settings
    for this site switch them off.`,
  denied: "This browser blocks them. Its settings for this site allow them again.",
  unsupported: `This browser has none for this page. Over plain HTTP, browsers allow them on the machine itself only; with a
    certificate (--cert, --key) they work in the whole network.`,
  default: "They say when a session waits for you or is finished, while you look elsewhere.",
});

function Notifications() {
  const state = permission.value;
  const ask = async () => {
    permission.value = await Notification.requestPermission();
    toast(permission.value === "granted" ? "notifications are on" : "notifications stay off");
  };
  return html`<p class="quiet" role="status">${SAID[state]}</p>
    ${state === "default" && html`<div><button class="button" onClick=${ask}><${Icon} name="bell" />Allow notifications</button></div>`}
    ${state === "granted" && html`<p><span class="chip done"><${Icon} name="check" />on</span></p>`}`;
}
