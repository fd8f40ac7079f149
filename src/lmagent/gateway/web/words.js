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

export const files = {};

export const changes = {};

export const work = {};

export const activity = {};

export const schedule = {};

export const usage = {};

export const models = {};

export const tools = {};

export const settings = {};
