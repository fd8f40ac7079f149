// @ts-check
// Keeps the page in the browser, so that it opens where no gateway answers (worker.js).

const WORKER = "/static/worker.js";

/** Begin to keep it. Browsers allow that on this machine and over HTTPS; elsewhere the page works without. */
export async function keepPage() {
  const { serviceWorker } = navigator;
  if (!serviceWorker || serviceWorker.controller) return;
  const types = /** @type {any} */ (window)["trustedTypes"];
  const url = types ? types.createPolicy("worker", { createScriptURL: () => WORKER }).createScriptURL("") : WORKER;
  await serviceWorker.register(url, { scope: "/" });
  const loaded = performance.getEntriesByType("resource").map(({ name }) => new URL(name).pathname);
  const files = loaded.filter((path) => path.startsWith("/static/"));
  await (await caches.open("page")).addAll(["/", ...new Set(files)]);
}
