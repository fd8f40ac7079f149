// The protocol's official npm client in the role of an editor: initialize, new, prompt with an approval, cancel, load.
// Arguments: the SDK's module, the workspace, the agent's command. It prints what it saw as one JSON object.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";

const [module, workspace, ...command] = process.argv.slice(2);
const acp = await import(module);

async function edited(act) {
  const agent = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
  const updates = [];
  const asked = [];
  const editor = acp
    .client({ name: "test" })
    .onRequest(acp.methods.client.session.requestPermission, async ({ params }) => {
      asked.push(params);
      return { outcome: { outcome: "selected", optionId: params.options[0].optionId } };
    })
    .onNotification(acp.methods.client.session.update, async ({ params }) => {
      updates.push(params.update);
    });
  const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
  const seen = await editor.connectWith(stream, async (context) => {
    const hello = await context.request(acp.methods.agent.initialize, { protocolVersion: 1, clientCapabilities: {} });
    return { hello, ...(await act(context, updates)) };
  });
  agent.stdin.end();
  const code = await new Promise((resolve) => (agent.exitCode === null ? agent.on("exit", resolve) : resolve(agent.exitCode)));
  return { ...seen, updates, asked, code };
}

const text = (words) => [{ type: "text", text: words }];
const methods = acp.methods.agent;

const first = await edited(async (context, updates) => {
  const session = await context.request(methods.session.new, { cwd: workspace, mcpServers: [] });
  const id = session.sessionId;
  const done = await context.request(methods.session.prompt, { sessionId: id, prompt: text("write b.txt") });
  const running = context.request(methods.session.prompt, { sessionId: id, prompt: text("and more") });
  while (!updates.some((update) => update.content?.text?.startsWith?.("And"))) await new Promise((go) => setTimeout(go, 20));
  await context.notify(methods.session.cancel, { sessionId: id });
  return { session, stops: [done.stopReason, (await running).stopReason] };
});
const second = await edited(async (context) => {
  const loaded = await context.request(methods.session.load, { cwd: workspace, sessionId: first.session.sessionId, mcpServers: [] });
  const listed = await context.request(methods.session.list, { cwd: workspace });
  return { loaded, listed };
});
console.log(JSON.stringify({ first, second }));
