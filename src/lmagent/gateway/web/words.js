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

export const chat = {
  message: "Message",
  write: "Write a message",
  ask: "Ask for something, / for commands, @ for files",
  add: "Add a message (delivered after the current step)",
  afterStep: "Delivered after the current step",
  afterTurn: "Sent when this turn ends",
  send: "Send",
  queue: "Queue",
  stop: "Stop",
  stopKey: "Stop (Esc)",
  closeAnswer: "Close the answer",
  suggestions: "Suggestions",
  dropHere: "Drop files to attach them",
  picture: "image",
  remove: (/** @type {string} */ name) => `Remove ${name}`,
  uploading: "Uploading …",
  waitingMessages: "Waiting messages",
  queued: "Queued – sent when this turn ends",
  steered: "Will be delivered after the current step",
  picturesOnly: "(images)",
  you: "You",
  sending: "Sending …",
  notSent: (/** @type {string} */ reason) => `Not sent: ${reason}`,
  discard: "Discard",
  tryAgain: "Try again",
  goOn: "Continue",
  notFound: "Session not found",
  newSession: "New session",
  untitled: "Untitled",
  loading: "Loading …",
  notShown: (/** @type {string} */ reason) => `This session cannot be shown: ${reason}`,
  reload: "Reload the page",
};

export const messages = {
  you: "You",
  agent: "Agent",
  imageOf: (/** @type {number} */ number) => `Image ${number} of your message`,
  attached: (/** @type {string} */ name) => `Attached: ${name}`,
  copy: "Copy",
  copied: "Copied",
  copyRefused: "The browser does not allow copying here.",
  copyYourself: "Select the text and copy it with the keyboard.",
  edit: "Edit message",
  editedText: "Edited message",
  editAbout: "Sends the message in a new branch. This conversation is kept, and files in the workspace stay as they are.",
  resend: "Send",
  regenerate: "Regenerate",
  branchHere: "Branch from here",
  branches: "Branches",
  previousBranch: "Previous branch",
  nextBranch: "Next branch",
  branchedFrom: "Branched from",
  branchedFromNothing: "Branched from a session that was deleted.",
  filesStay: "Files in the workspace stay as they are.",
  untitled: "Untitled",
  writingPlan: "Writing a plan …",
  planAsWritten: "The plan, as the model wrote it",
  thinking: "Thinking",
  thought: "Thought",
  level: { info: "", warning: "Warning: ", error: "Error: " },
};

export const header = {};

export const approvals = {};

export const plans = {};

export const sessions = {};

export const files = {
  all: "All files",
  asPreview: "Preview",
  asText: "Text",
  attach: "Add attachment",
  attachments: "Attachments",
  back: "Back",
  brokenImage: "The browser cannot show this image.",
  clashFix: "Your text is still here. Overwrite the file with it, or reload the file.",
  copied: (/** @type {string} */ path) => `Copied: ${path}`,
  copyPath: "Copy path",
  discard: "Discard changes",
  discardQuestion: "Discard what you typed?",
  download: "Download",
  downloadFolder: (/** @type {string} */ folder) => (folder ? `Download ${folder} as ZIP` : "Download all files as ZIP"),
  dropHere: (/** @type {string} */ folder) => `Drop to upload to ${folder || "the workspace"}`,
  edit: "Edit",
  editNote: "Ctrl+S saves. Unsaved text is kept in this browser.",
  emptyFile: "The file is empty.",
  emptyFolder: "empty",
  find: "Find files by name",
  firstOnes: "not all shown",
  isMentioned: (/** @type {string} */ path) => `${path} was added to the message`,
  kinds: { link: "link", other: "special file" },
  loading: "Loading …",
  loadingAll: "Loading files …",
  mention: "Mention",
  mentionLabel: "Mention in message",
  more: "Show more",
  moreNames: "This folder has more files than are listed here. Search to find the others.",
  noCopy: "The browser does not allow copying here",
  noCopyFix: "Over plain HTTP it allows copying on this computer only.",
  noFolders: "Folders cannot be uploaded",
  noFoldersFix: "Drop the files in the folder instead.",
  noResults: (/** @type {string} */ text) => `No results for “${text}”.`,
  noText: (/** @type {string} */ size) => `This is not a text file (${size}).`,
  nothing: "No files yet",
  nothingHint: "Ask the agent to create some, or drop files here.",
  overwrite: "Overwrite",
  pageNote: "Shown in a sandbox: scripts do not run, and nothing is loaded from other places.",
  pageOf: (/** @type {string} */ path) => `Preview of ${path}`,
  refresh: "Refresh files",
  reload: "Reload file",
  reloadFile: "Reload file",
  reloadQuestion: "Discard what you typed and load the file from disk?",
  replace: "Replace",
  replaceQuestion: (/** @type {string} */ path) => `${path} already exists. Replace it? Undo brings the old file back.`,
  restored: "Your unsaved changes were restored.",
  results: "results",
  save: "Save",
  saveAnyway: "Save anyway",
  saved: (/** @type {string} */ path) => `Saved ${path}`,
  sending: (/** @type {string[]} */ names) => `Uploading ${names.join(", ")} …`,
  shownOf: (/** @type {string} */ part, /** @type {string} */ whole) => `${part} of ${whole} shown`,
  skip: "Skip",
  sureQuestion: (/** @type {string} */ why) => `${why}. Upload anyway?`,
  table: "Table",
  tableCut: (/** @type {number} */ rows, /** @type {number} */ columns) => `Only the first ${rows} rows and ${columns} columns are shown.`,
  textOf: (/** @type {string} */ path) => `Text of ${path}`,
  theFiles: "the files",
  tooLarge: (/** @type {string} */ name, /** @type {number} */ size, /** @type {number} */ most) =>
    `${name} is too large: it has ${megabytes(size)}, and an upload can have ${megabytes(most)}`,
  tooLargeFix: "Copy it into the workspace folder another way.",
  tree: "Workspace files",
  uploadAnyway: "Upload anyway",
  uploadTo: (/** @type {string} */ folder) => `Upload files to ${folder || "the workspace"}`,
  uploaded: (/** @type {number} */ count, /** @type {string} */ folder) =>
    `Uploaded ${count} ${count === 1 ? "file" : "files"} to ${folder || "the workspace"}`,
  viewAs: "Show as",
};

/** @param {number} bytes */
const megabytes = (bytes) => `${Math.ceil(bytes / 1_000_000).toLocaleString("en-US")} MB`;

export const changes = {
  counted: "lines added and removed",
  created: "new",
  deleted: "deleted",
  label: "Changes",
  layout: "Layout",
  moreLines: (/** @type {number} */ count) => `Show ${count} more ${count === 1 ? "line" : "lines"}`,
  noLines: (/** @type {string} */ what) => `${what}. No text to compare.`,
  nothing: "No changes yet",
  nothingHint: "Files that the agent writes in this session appear here, line by line.",
  nothingToUndo: "Nothing to undo",
  of: (/** @type {string} */ path) => `Changes of ${path}`,
  redo: "Redo",
  redoQuestion: "Redo the last undo?",
  redoYes: "Redo",
  redone: "Redone",
  split: "Side by side",
  undo: "Undo last turn",
  undoQuestion: "Undo the file changes of the last turn?",
  undoYes: "Undo",
  undone: "The last changes were undone",
  unified: "One column",
  what: "changes",
  whileRunning: "Available when the turn ends.",
};

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

export const settings = {};
