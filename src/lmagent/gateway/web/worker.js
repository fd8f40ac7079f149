// @ts-check
// The page without its gateway: the files loaded last are kept, so that it opens and says that no gateway answers.

const KEPT = "page";
const worker = /** @type {any} */ (self);

worker.addEventListener("install", () => worker.skipWaiting());
worker.addEventListener("activate", (/** @type {any} */ event) => event.waitUntil(worker.clients.claim()));
worker.addEventListener("fetch", (/** @type {any} */ event) => {
  const { method, url } = event.request;
  const { origin, pathname } = new URL(url);
  const ours = origin === worker.location.origin && (pathname === "/" || pathname.startsWith("/static/"));
  if (ours && method === "GET") event.respondWith(answer(event.request));
});

worker.addEventListener("notificationclick", (/** @type {any} */ event) => {
  event.notification.close();
  event.waitUntil(show(event.notification.data?.address ?? ""));
});

/** Show the session that a notification is about, in a window that is there or in a new one. @param {string} address */
async function show(address) {
  const [open] = await worker.clients.matchAll({ type: "window", includeUncontrolled: true });
  if (!open) return worker.clients.openWindow(`/${address}`);
  await open.focus().catch(() => {}); // a browser may refuse it
  open.postMessage({ address });
}

/** The gateway's answer, which is kept; the kept one where no gateway answers. @param {Request} request */
async function answer(request) {
  try {
    const fresh = await fetch(request);
    if (fresh.ok) keep(request, fresh.clone());
    return fresh;
  } catch (error) {
    const kept = await caches.match(request, { ignoreVary: true });
    if (kept) return kept;
    throw error;
  }
}

/** @param {Request} request @param {Response} response */
async function keep(request, response) {
  try {
    await (await caches.open(KEPT)).put(request, response);
  } catch {
    // the disk is full: the page works without
  }
}
