// @ts-check
// Logging in with the PIN, and out.
import { get, post } from "./session/api.js";
import { html, useState } from "./lib.js";
import { login, lost, me, tried } from "./session/state.js";
import { login as words } from "./words/conversation.js";

/** Ask the gateway who we are; sets `me` and `login`. */
export async function whoAmI() {
  try {
    me.value = await get("/api/me");
    login.value = "in";
  } catch (error) {
    const { status, message } = /** @type {import("./session/api.js").ApiError} */ (error);
    if (status !== 401) lost.value = words.retrying(message);
  }
}

/** End this browser's login. */
export async function logOut() {
  await tried(async () => {
    await post("/api/logout");
    login.value = "out";
  });
}

/** The screen before the login. */
export function Login() {
  const [pin, setPin] = useState("");
  const [wrong, setWrong] = useState("");
  const [busy, setBusy] = useState(false);
  const enter = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setBusy(true);
    setWrong("");
    try {
      await post("/api/login", { pin: pin.trim() });
      await whoAmI();
    } catch (error) {
      const { code, words: said } = /** @type {import("./session/api.js").ApiError} */ (error);
      setWrong(code === "wrong_pin" ? words.wrong : said);
    }
    setBusy(false);
  };
  return html`<main class="whole">
    <form class="card" onSubmit=${enter}>
      <div class="brand"><img src="/static/icon.svg" alt="" />lmagent</div>
      <h1>${words.heading}</h1>
      <p class="quiet">${words.where(html`<code>lmagent web</code>`)}</p>
      <label>${words.pin}
        <input class="field" name="pin" value=${pin} onInput=${(/** @type {any} */ event) => setPin(event.target.value)}
          inputmode="numeric" autocomplete="one-time-code" autofocus required aria-describedby="wrong" />
      </label>
      <div id="wrong" role="alert">${wrong && html`<span class="notice error">${wrong}</span>`}</div>
      <button class="button main" disabled=${busy || !pin.trim()}>${words.submit}</button>
    </form>
  </main>`;
}
