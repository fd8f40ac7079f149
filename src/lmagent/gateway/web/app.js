// @ts-check
// Where the page begins.
import { html, render, useEffect, useErrorBoundary } from "./lib.js";
import { Login, whoAmI } from "./login.js";
import { Shell } from "./shell.js";
import { applyTheme, login, lost } from "./session/state.js";
import { page as words } from "./words/conversation.js";

function App() {
  const [fault] = useErrorBoundary((error) => console.error(error));
  useEffect(() => {
    const again = setInterval(() => login.peek() === "unknown" && whoAmI(), 3000);
    whoAmI();
    return () => clearInterval(again);
  }, []);
  if (fault) {
    return html`<main class="whole"><div class="card" role="alert"><h1>${words.fault}</h1>
      <p>${String(fault.message ?? fault)}</p>
      <p class="quiet">${words.faultAbout}</p>
      <button class="button main" onClick=${() => location.reload()}>${words.reload}</button></div></main>`;
  }
  if (login.value === "out") return html`<${Login} />`;
  if (login.value === "in") return html`<${Shell} />`;
  return html`<main class="whole"><p class="quiet" role="status">${lost.value || words.loading}</p></main>`;
}

applyTheme();
addEventListener("load", () => import("./offline.js").then(({ keepPage }) => keepPage()).catch(console.warn));
render(html`<${App} />`, /** @type {Element} */ (document.getElementById("app")));
