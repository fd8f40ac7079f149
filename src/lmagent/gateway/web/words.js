// @ts-check
// Every text that the page shows, by the part of the page that shows it. Nothing else on the page holds words: a check reads
// this file, and a translation replaces it. Texts of errors come from the gateway.

export const common = {
  cancel: "Cancel",
};

export const login = {
  heading: "Log in",
  where: (/** @type {any} */ command) => ["The PIN is shown in the terminal where ", command, " was started."],
  pin: "PIN",
  submit: "Log in",
  retrying: (/** @type {string} */ problem) => `${problem}; trying again`,
};

export const shell = {};

export const welcome = {
  heading: "What shall we work on?",
  about: "The agent reads, writes and runs things in this folder, with a model on your own hardware. It asks before risky actions, records everything, and can undo its changes.",
  workspace: "Workspace",
  model: "Model",
  serversChoice: "the server's choice",
  at: (/** @type {string} */ endpoint) => `at ${endpoint}`,
  examplesHeading: "Examples",
  examples: [
    "Look around this folder and tell me what it is, and how its parts belong together.",
    "Find TODO comments and other loose ends here, and list them by how much they matter.",
    "Write a test for the part of this project that most needs one, and run it.",
  ],
  recent: "Recent sessions",
};

export const setup = {
  checking: "Checking …",
  checkAgain: "Check again",
  noServer: "No model server answers.",
  noModels: "The model server has no models.",
  manyModels: "No model is chosen",
  manyModelsAbout: (/** @type {number} */ count) => `The server lists ${count} models and picks one by itself. Choose the one that new sessions use.`,
  chooseModel: "Choose a model",
  lookedAt: "Looked for a server at:",
  answers: (/** @type {number} */ models) => (models === 1 ? "running, 1 model" : `running, ${models} models`),
  silent: "not running",
  use: (/** @type {string} */ model) => `Use ${model}`,
  useOf: (/** @type {string} */ server) => `Model of ${server}`,
  switched: (/** @type {string} */ model) => `New sessions use ${model}`,
  startOther: "Start LM Studio, Ollama, llama.cpp or vLLM, then check again.",
  ownHere: (/** @type {string} */ model) => `${model} is on this machine. lmagent can run it itself.`,
  ownStart: "Start and use it",
  ownStarting: "Starting …",
  ownDownload: (/** @type {string} */ name, /** @type {number} */ gb) => `Download ${name} (${gb} GB)`,
  ownSuggested: (/** @type {string} */ text) => `lmagent can download a model that fits this machine and run it itself: ${text}.`,
  ownInstall: "To run models without another program, install lmagent's engine:",
  noSandbox: "No sandbox works here, so commands cannot run.",
  noSandboxFix: "Install bubblewrap (on Debian and Ubuntu: sudo apt install bubblewrap) or Docker. The reason is shown by:",
  sandboxOff: "The sandbox is switched off. Commands run with all of your rights.",
  sandboxOffFix: "Remove the setting sandbox = \"off\" and restart lmagent.",
  sandboxWeak: "The landlock sandbox is limited: commands share your network and processes.",
  sandboxWeakFix: "Install bubblewrap for a complete sandbox.",
  readOnly: (/** @type {string} */ folder) => `${folder} cannot be written to, so the agent can change nothing and no session can be saved.`,
  readOnlyFix: "Make the folder writable, or start lmagent in another one:",
  missing: "Before you start",
  failed: (/** @type {string} */ problem) => `The setup could not be checked: ${problem}`,
};

export const gone = {
  heading: "Session not found.",
  about: "It may have been deleted in another window or in a terminal.",
  unsent: "Your unsent text. It is moved to the new session:",
  begin: "New session",
};

export const chat = {};

export const messages = {};

export const header = {};

export const approvals = {};

export const plans = {};

export const sessions = {};

export const files = {};

export const changes = {};

export const work = {};

export const activity = {};

export const schedule = {};

export const usage = {};

export const models = {
  asking: "Asking the model server …",
  lead: (/** @type {any} */ endpoint, /** @type {string} */ provider) => ["At ", endpoint, provider && ` (${provider})`, ". "],
  usesDefault: (/** @type {any} */ model) => ["New sessions use ", model, "."],
  usesAny: "New sessions use the model that the server has loaded.",
  refresh: "Refresh",
  server: "Server",
  backToCurrent: "Back to the current server",
  vanished: (/** @type {string} */ model) => `The server no longer lists ${model}. Choose another model, or load it there.`,
  search: "Search models",
  none: "No models",
  noneAbout: "Download or load a model in the server, then refresh.",
  noResults: (/** @type {string} */ words) => `No results for “${words}”`,
  note: "Existing sessions keep their model. You can switch in the session's header; the new model then re-reads the conversation.",
  loaded: "Loaded",
  notLoaded: "Not loaded",
  context: (/** @type {string} */ tokens) => `${tokens} tokens context`,
  parameters: (/** @type {string} */ size) => `${size} parameters`,
  vision: "Images",
  textOnly: "Text only",
  tools: "Tools",
  thinking: "Thinking",
  embeddings: "Embeddings only, cannot chat",
  isDefault: "Default",
  setDefault: "Set as default",
  setDefaultYes: "Set as default",
  costUnloaded: "Use this model for new sessions? It is not loaded: the first message waits until it is, and the model that is loaded now may be unloaded.",
  cost: "Use this model for new sessions? The first prompt is read in full, because the server has cached nothing for this model.",
  chosen: (/** @type {string} */ model) => `New sessions use ${model}`,
  load: "Load",
  loading: "Loading …",
  unload: "Unload",
  unloading: "Unloading …",
  unloadQuestion: "Unload this model? The next message to it waits until it is loaded again.",
  didLoad: (/** @type {string} */ model) => `${model} is loaded`,
  didUnload: (/** @type {string} */ model) => `${model} is unloaded`,
  down: "The model server does not answer.",
  downStart: (/** @type {any} */ endpoint, /** @type {any} */ command) => ["Start LM Studio, Ollama or llama.cpp at ", endpoint, ", or run ", command, "."],
  downDoctor: (/** @type {any} */ command) => [command, " in a terminal finds the cause."],
};

export const downloads = {
  heading: "Download a model",
  name: "Model to download",
  hintServer: (/** @type {string} */ server) => `A name from ${server}'s library, for example qwen3:8b`,
  hintLibrary: "Goes to lmagent's own library. OWNER/REPO or OWNER/REPO:QUANT from Hugging Face, an address, or a short name such as qwen3-8b",
  into: "Download to",
  library: "lmagent's own library",
  begin: "Download",
  running: "Downloading",
  done: "Downloaded",
  stopped: "Paused",
  failed: "Failed",
  progress: (/** @type {string} */ have, /** @type {string} */ total) => (total ? `${have} of ${total}` : have),
  percent: (/** @type {number} */ percent) => `${percent} %`,
  cancel: "Cancel",
  resume: "Resume",
  remove: "Remove",
  removeQuestion: "Remove this download? The part that was fetched is deleted.",
  dismiss: "Dismiss",
  use: "Set as default",
  started: (/** @type {string} */ name) => `Downloading ${name}`,
  list: "Downloads",
  progressOf: (/** @type {string} */ name) => `Progress of ${name}`,
  what: "the downloads",
};

export const tools = {};

export const settings = {
  colours: "Appearance",
  themes: { system: "System", light: "Light", dark: "Dark" },
  notifications: "Notifications",
  notificationsSaid: {
    granted: "You are notified when a session waits for you or finishes while this page is in the background. Switch this off in the browser's site settings.",
    denied: "Notifications are blocked. Allow them in the browser's site settings.",
    unsupported: "This browser offers no notifications here. Over plain HTTP they work on this machine only; with a certificate (--cert, --key) they work on the whole network.",
    default: "Get notified when a session waits for you or finishes while you are elsewhere.",
  },
  notificationsOn: "Notifications are on",
  notificationsOff: "Notifications stay off",
  allowNotifications: "Allow notifications",
  on: "On",
  keys: "Keyboard",
  letters: "Single-key shortcuts",
  gateway: "This gateway",
  workspace: "Workspace",
  server: "Model server",
  version: "Version",
  loggedIn: "Logged in",
  withPin: "with the PIN or a link, in this browser",
  withToken: "with the token",
  logOut: "Log out",
  all: "All settings",
  lead: (/** @type {any} */ file) => ["Changes are saved in ", file, "."],
  search: "Search settings",
  onlyChanged: "Only those that differ from the default",
  count: (/** @type {number} */ shown, /** @type {number} */ all) => `${shown} of ${all} settings`,
  noResults: (/** @type {string} */ text) => `No results for “${text}”`,
  what: "the settings",
  origins: /** @type {Record<string, string>} */ ({
    default: "Default", "user config": "Your configuration", "user .env": "Your .env", "config.json": "config.json",
    "workspace config": "Folder", "workspace .env": "Folder's .env", "current .env": "Folder's .env",
    environment: "Environment", flag: "Command line",
  }),
  from: (/** @type {string} */ origin) => `From ${origin}`,
  defaultIs: (/** @type {string} */ value) => `Default: ${value}`,
  pending: "After restart",
  change: "Change",
  changeNamed: (/** @type {string} */ name) => `Change ${name}`,
  save: "Save",
  cancel: "Cancel",
  reset: "Reset",
  resetQuestion: (/** @type {string} */ value) => `Use the default (${value}) again?`,
  locked: "Cannot be changed here, because it guards what the agent may do or reach. Edit the file instead.",
  stricterOnly: "Only stricter values can be set here.",
  allowed: (/** @type {string} */ text) => `Allowed: ${text}`,
  yes: "On",
  no: "Off",
  none: "None",
  saved: {
    sessions: (/** @type {string} */ name) => `${name} is saved. Sessions opened from now on use it.`,
    restart: (/** @type {string} */ name) => `${name} is saved. It takes effect when lmagent restarts.`,
    hidden: (/** @type {string} */ name, /** @type {string} */ place) => `${name} is saved, but ${place} overrides it.`,
  },
  warnings: "Not taken over",
};

export const options = {
  lead: "These values apply to this session instead of the settings, from the next model call on. Changing them does not re-read the conversation.",
  leadNew: "These values apply to the session that your next message starts, instead of the settings.",
  sampling: "Sampling",
  instructions: "Instructions",
  instructionsHint: "Added to this session for the model, besides the task. Appended to the conversation, so the cached prompt stays valid.",
  fields: {
    temperature: "Temperature", max_tokens: "Max tokens per reply", top_p: "Top P", frequency_penalty: "Frequency penalty",
    presence_penalty: "Presence penalty", seed: "Seed",
  },
  setting: (/** @type {string} */ value) => `Setting: ${value}`,
  server: "server's choice",
  save: "Save",
  saved: "Saved. It applies from the next model call on.",
  savedNew: "Saved for the next session",
  reset: "Use the settings",
  notNumber: (/** @type {string} */ name) => `${name} must be a number.`,
};

export const keys = {
  heading: "Keyboard shortcuts",
  close: "Close",
  off: "Single-key shortcuts can be switched off in Settings.",
  groups: /** @type {[string, [string, string][]][]} */ ([
    ["Anywhere", [["?", "Show shortcuts"], ["m", "Focus message box"], ["n", "New session"], ["s", "Search sessions"], ["f", "Show or hide files"], ["Esc", "Close dialog or panel"]]],
    ["Message box", [["Enter", "Send; while the agent works, deliver after the current step"], ["Shift Enter", "New line"], ["Ctrl Enter", "Send, also on phones"],
      ["↑", "Previous message, in an empty box"], ["/", "Commands"], ["@", "Files"]]],
    ["While an approval is open", [["a", "Approve"], ["d", "Deny"]]],
    ["Lists", [["↑ ↓", "Move through sessions or files"], ["← →", "Close and open a folder"], ["Enter", "Open"]]],
  ]),
};
