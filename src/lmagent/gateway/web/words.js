// @ts-check
// Every text that the page shows, by the part of the page that shows it. Nothing else on the page holds words: a check reads
// this file, and a translation replaces it. Texts of errors come from the gateway.

export const common = {
  cancel: "Cancel",
};

export const login = {};

export const shell = {};

export const welcome = {};

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
  pictures: "Images",
  addPicture: "Add an image",
  dropHere: "Drop images to attach them",
  picture: "image",
  remove: (/** @type {string} */ name) => `Remove ${name}`,
  uploading: "Uploading …",
  onlyPictures: "Only images can be attached.",
  useMention: "Use @ to mention a workspace file.",
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
  branchCount: (/** @type {number} */ count) => (count === 1 ? "1 branch" : `${count} branches`),
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
  statuses: {
    pending: "Waiting",
    running: "Running",
    ok: "Done",
    error: "Failed",
    denied: "Denied",
    interrupted: "Stopped",
  },
  linesChanged: (/** @type {number} */ added, /** @type {number} */ removed) => `${added} lines added, ${removed} removed`,
  outputSoFar: "Output so far",
  result: "Result",
  noOutput: "(no output)",
  showAll: "Show all",
  wholeOutput: (/** @type {string} */ bytes) => `Whole output, ${bytes} bytes`,
  arguments: "Arguments",
  conversation: "Conversation",
  latest: "Jump to latest",
  older: (/** @type {number} */ count) => `Show ${count} older`,
  level: { info: "", warning: "Warning: ", error: "Error: " },
};

export const header = {
  newSession: "New session",
  untitled: "Untitled",
  rename: "Rename",
  title: "Title",
  more: "More",
  drawer: "Sessions and pages",
  back: "Back",
  tokens: (/** @type {string} */ tokens) => `${tokens} tokens`,
  cache: (/** @type {number} */ percent) => `cache ${percent} %`,
  speed: (/** @type {number} */ tokens) => `${tokens} tokens/s`,
  reread: (/** @type {string} */ tokens) => `${tokens} tokens were read again: the server lost its cache`,
  permissions: (/** @type {string} */ mode) => `Permissions: ${mode}`,
  modes: {
    manual: "Asks before everything",
    normal: "Asks before changes and commands",
    auto: "Asks nothing; rules that deny still apply",
  },
  model: (/** @type {string} */ model) => `Model: ${model}`,
  serversChoice: "the server's choice",
  anyModel: "any model",
  noModels: "The server lists no models.",
  loaded: "loaded",
  seesImages: "sees images",
  refresh: "Refresh",
  context: (/** @type {number} */ percent, /** @type {string} */ window) => `Context: ${percent} % of ${window} tokens`,
  contextOpen: (/** @type {string} */ used) => `Context: ${used} tokens`,
  contextTitle: "Context window",
  parts: /** @type {Record<string, string>} */ ({
    System: "System prompt",
    Tools: "Tools",
    Notes: "Notes",
    User: "Your messages",
    Agent: "Agent's messages",
    Results: "Tool results",
  }),
  free: "Free",
  used: (/** @type {string} */ used, /** @type {string} */ window) => `${used} of ${window} tokens used`,
  cut: (/** @type {string} */ tokens, /** @type {number} */ percent) => `Shortened automatically at ${tokens} tokens (${percent} %).`,
  cuts: (/** @type {number} */ times) => (times === 1 ? "Shortened once so far." : `Shortened ${times} times so far.`),
  shorten: "Shorten now",
  needsApproval: "Needs your approval",
  approvalAsked: (/** @type {string} */ summary) => `Waiting for your approval: ${summary}`,
  planAsked: (/** @type {string} */ title) => `A plan waits for your approval: ${title}`,
  about: (/** @type {string} */ title, /** @type {string} */ words) => `${title}: ${words}`,
  planNeedsApproval: "Plan needs approval",
  working: "Working",
  retrying: "Retrying",
  retryIn: (/** @type {string} */ reason, /** @type {string} */ delay) => `${reason}; next try in ${delay}`,
  queued: "Queued",
  queuedAbout: "waiting for another session's turn",
  reading: "Reading",
  readingShare: (/** @type {number} */ percent) => `${percent} % of the prompt`,
  readingTokens: (/** @type {string} */ tokens) => `reading ${tokens} tokens`,
  secondsLeft: (/** @type {number} */ seconds) => `, about ${seconds} s left`,
  loading: "loading the model or reading the prompt",
  states: /** @type {Record<string, string>} */ ({ thinking: "Thinking", running: "Working", waiting: "Waiting" }),
  waitsUntil: (/** @type {string} */ time) => `Waiting until ${time}`,
  inTime: (/** @type {string} */ time) => `in ${time}`,
  idle: "Idle",
  outcomes: /** @type {Record<string, string>} */ ({
    done: "Done",
    error: "Failed",
    limit: "Stopped at a limit",
    blocked: "Blocked",
    denied: "Denied",
    interrupted: "Stopped",
    question: "Needs your answer",
    waiting: "Waiting",
  }),
};

export const approvals = {
  region: "Approval",
  heading: "Allow this?",
  preview: "What would happen",
  message: "Message to the model (optional)",
  placeholder: "Use the test database instead",
  approve: "Approve",
  deny: "Deny",
  always: (/** @type {any} */ rules) => ["Always allow ", rules, " in this session"],
  keys: (/** @type {any} */ approve, /** @type {any} */ deny) => [approve, " approves, ", deny, " denies"],
};

export const plans = {
  region: "Plan",
  edited: "edited",
  goal: "Goal",
  risks: "Risks",
  message: "Message to the model (optional)",
  placeholder: "What to change, or why not",
  approve: "Approve",
  approveEdited: "Approve as edited",
  revise: "Revise",
  edit: "Edit",
  stopEditing: "Stop editing",
  reject: "Reject",
  doneWhen: (/** @type {string} */ check) => `done when: ${check}`,
  risk: (/** @type {string} */ risk) => `risk: ${risk}`,
  after: (/** @type {string} */ steps) => `after: ${steps}`,
  step: (/** @type {number} */ number) => `Step ${number}`,
  stepDone: (/** @type {number} */ number) => `Step ${number} is done when`,
  donePlaceholder: "Done when …",
  removeStep: (/** @type {number} */ number) => `Remove step ${number}`,
  addStep: "Add a step",
};

export const sessions = {};

export const files = {};

export const changes = {};

export const work = {};

export const activity = {};

export const schedule = {};

export const usage = {};

export const models = {};

export const tools = {};

export const settings = {};
