// @ts-check
// Where the page begins.
import { html, render, useEffect, useErrorBoundary } from "./lib.js";
import { Login, whoAmI } from "./login.js";
import { Shell } from "./shell.js";
import { login, lost } from "./state.js";
import { applyTheme } from "./theme.js";

function App() {
  const [fault] = useErrorBoundary((error) => console.error(error));
  useEffect(() => {
    const again = setInterval(() => login.peek() === "unknown" && whoAmI(), 3000);
    whoAmI();
    return () => clearInterval(again);
  }, []);
  if (fault) {
    return html`<main class="whole"><div class="card" role="alert"><h1>The page has a fault</h1>
      <p>${String(fault.message ?? fault)}</p>
      <p class="quiet">Nothing is lost: sessions live in the gateway, and go on.</p>
      <button class="button main" onClick=${() => location.reload()}>Load it again</button></div></main>`;
  }
  if (login.value === "out") return html`<${Login} />`;
  if (login.value === "in") return html`<${Shell} />`;
  return html`<main class="whole"><p class="quiet" role="status">${lost.value || "Loading …"}</p></main>`;
}

applyTheme();
addEventListener("load", () => import("./offline.js").then(({ keepPage }) => keepPage()).catch(console.warn));
render(html`<${App} />`, /** @type {Element} */ (document.getElementById("app")));
