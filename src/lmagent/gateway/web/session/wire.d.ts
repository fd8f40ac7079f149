// What goes between the gateway and the page. The Structs that these repeat are named; Python is the source.

/** core/view.py: Block */
export type UserBlock = {
  kind: "user";
  id: string;
  text: string;
  delivery: string;
  images: number;
  turn: number;
};
export type TextBlock = { kind: "text"; text: string; turn: number };
export type ThinkingBlock = { kind: "thinking"; text: string };
export type ToolStatus = "pending" | "running" | "ok" | "error" | "denied" | "interrupted";
export type ToolBlock = {
  kind: "tool";
  call_id: string;
  tool: string;
  summary: string;
  status: ToolStatus;
  content: string;
  diff: string;
  duration: number;
  page: PageCard | null;
  picture: string;
  cut?: boolean;
};
export type PageCard = { url: string; title: string };
export type Level = "info" | "warning" | "error";
export type NoticeBlock = { kind: "notice"; level: Level; text: string };
export type BranchBlock = { kind: "branch"; parent: string };
export type Block = UserBlock | TextBlock | ThinkingBlock | ToolBlock | NoticeBlock | BranchBlock;

/** core/view.py: Pending */
export type Approval = {
  id: string;
  call_id: string;
  tool: string;
  summary: string;
  preview: string;
  reason: string;
  grant: string;
};

export type Totals = { steps: number; prompt: number; completion: number; cached: number; context: number };

/** core/view.py: Pace */
export type Pace = {
  read_per_s: number;
  write_per_s: number;
  prompt: number;
  fresh: number;
  reread: number;
  reread_total: number;
  reports_cache: boolean;
};

/** core/work.py: Task; fields with their default are left out */
export type Task = {
  id: string;
  kind: "todo" | "step" | "task";
  title: string;
  status?: "pending" | "in_progress" | "completed" | "blocked" | "failed" | "skipped";
  notes?: string;
  verification?: string;
  depends_on?: string[];
  parent?: string;
  risk?: string;
  result?: string;
};

/** core/work.py: Plan */
export type PlanStep = {
  id: string;
  description: string;
  verification?: string;
  risk?: string;
  dependencies?: string[];
};
export type Plan = { title: string; goal: string; steps: PlanStep[]; risk_areas?: string[] };

export type Mode = "auto" | "normal" | "manual";
export type State = "idle" | "queued" | "thinking" | "running" | "waiting" | "retrying";

/** core/model.py: SessionOptions; what is left to the settings is left out */
export type SessionOptions = {
  temperature?: number;
  max_tokens?: number;
  top_p?: number;
  frequency_penalty?: number;
  presence_penalty?: number;
  seed?: number;
  instructions?: string;
};

/** core/view.py: View */
export type View = {
  session: string;
  title: string;
  agent: string;
  model: string;
  mode: Mode;
  state: State;
  turn: number;
  outcome: string;
  until: number;
  blocks: Block[];
  waiting: UserBlock[];
  draft: string;
  thinking: string;
  progress: number | null;
  approvals: Approval[];
  totals: Totals;
  pace: Pace;
  seconds_left: number | null;
  work: "normal" | "bounded" | "plan" | "deep";
  tasks: Task[];
  plan: Event | null;
  options: SessionOptions;
};

/** An event of core/events.py or core/live.py as JSON; which fields it has is told by its `type`. */
export type Event = { type: string; id: string; seq: number; ts: number; turn: number; [field: string]: any };

/** GET /api/agents */
export type Agent = { name: string; title: string; description: string; source: string; mode: Mode; model: string };

/** GET /api/me */
export type Me = {
  agent: string;
  title: string;
  caller: "page" | "token";
  version: string;
  workspace: string;
  model: string;
  mode: Mode;
  endpoint: string;
  models_url: boolean;
};

/** GET /api/sessions */
export type Row = {
  id: string;
  title: string;
  status: string;
  waiting_for: "" | "approval" | "plan" | "question" | "time";
  [field: string]: any;
};

/** GET /api/models */
export type Models = {
  models: { id: string; loaded: boolean | null; context: number | null; vision: boolean | null }[];
  current: string;
  provider: string;
  endpoint: string;
};

/** gateway/api/saving.py: Saved */
export type Saved = { path: string; sha256: string; size: number; changed: boolean };
