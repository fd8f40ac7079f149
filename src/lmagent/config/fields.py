"""Fields: what each setting is called, what it may be, what it means, and what a folder's own files may do to it.

One table, from which the loader reads, the errors are worded and `docs/configuration.md` is generated.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from lmagent.config.settings import DEFAULTS

Kind = Literal["text", "secret", "path", "url", "integer", "number", "switch", "presence", "choice", "rules"]

FolderRule = Literal["free", "stricter", "smaller", "endpoint", "trusted", "elsewhere"]
"""What a file that lies in a folder nobody vouched for (its `.lmagent/config.toml`, its `.env`) may do:

free       set it
stricter   move the permission mode towards manual
smaller    lower a budget
endpoint   name a server on this machine, unless a key of the user's own would go there; a key only for such a server
trusted    nothing, until the folder is trusted
elsewhere  nothing, ever: it is decided before the file is read, or protects the user from it
"""


class Field(Struct, frozen=True):
    """One setting.

    Attributes:
        name: the key in `config.toml` and the attribute of `Settings`.
        kind: what it may be.
        help: one line for the documentation.
        env: its own environment variable. Other names that are accepted stand in `names.SEED_NAMES`.
        flag: the command line flag that sets it, where there is one.
        choices: the values of a choice, from the loosest to the strictest.
        low: the least value, inclusive.
        high: the greatest value, inclusive.
        optional: "none" and -1 are accepted and mean no value.
        folder: what a file in an untrusted folder may do to it.
    """

    name: str
    kind: Kind
    help: str
    env: str
    flag: str = ""
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    optional: bool = False
    folder: FolderRule = "free"

    @property
    def default(self) -> Any:
        """The value when nothing sets it."""
        return DEFAULTS[self.name]

    @property
    def secret(self) -> bool:
        """Whether its value must never be shown."""
        return self.kind == "secret"


FIELDS: tuple[Field, ...] = (
    Field(
        "workspace",
        "path",
        "The folder the agent works in. Unset: the current folder; `~/lm_workspace` from the home folder or `/`.",
        "WORKSPACE",
        "--workspace",
    ),
    Field(
        "agent_data_dir",
        "path",
        "Where data of no workspace is kept, such as the list of trusted folders. Unset: the platform's data folder.",
        "AGENT_DATA_DIR",
        folder="elsewhere",
    ),
    Field(
        "llm_url",
        "url",
        "The model server: a base URL or the full chat URL. Unset: a server running on this machine is looked for.",
        "LLM_URL",
        "--base-url",
        folder="endpoint",
    ),
    Field(
        "llm_base_url",
        "url",
        "The model server's base URL; used where `llm_url` is unset.",
        "LLM_BASE_URL",
        folder="endpoint",
    ),
    Field(
        "llm_api_key",
        "secret",
        "The key for the model server; a local one takes anything.",
        "LLM_API_KEY",
        folder="endpoint",
    ),
    Field(
        "openrouter_api_key",
        "secret",
        "The key for OpenRouter, which is used when this is set and no URL is. It is sent to OpenRouter only.",
        "OPENROUTER_API_KEY",
        folder="trusted",
    ),
    Field("llm_model", "text", "The model to ask for. Empty: what the server has loaded.", "LLM_MODEL", "--model"),
    Field(
        "llm_temperature",
        "number",
        "Sampling temperature; none leaves it to the server.",
        "LLM_TEMPERATURE",
        low=0,
        high=5,
        optional=True,
    ),
    Field(
        "llm_max_tokens",
        "integer",
        "Cap on one reply, in tokens; none leaves it to the server.",
        "LLM_MAX_TOKENS",
        low=1,
        optional=True,
    ),
    Field(
        "llm_timeout",
        "number",
        "Seconds without any sign of life from the model server before a request is given up; from the default on, a "
        "long prompt is given 0.1 s a token to be read in silence.",
        "LLM_TIMEOUT",
        low=0.1,
        high=86400,
    ),
    Field(
        "llm_max_retries", "integer", "How often a failed request is tried again.", "LLM_MAX_RETRIES", low=0, high=100
    ),
    Field(
        "llm_retry_delay",
        "number",
        "Seconds before the first retry; later ones wait longer.",
        "LLM_RETRY_DELAY",
        low=0,
        high=3600,
    ),
    Field(
        "thinking_model",
        "switch",
        "Strip thoughts from what is fed back to the model. None: what suits the model.",
        "THINKING_MODEL",
        optional=True,
    ),
    Field(
        "prewarm",
        "switch",
        "Let a local server read the fixed part of the prompt while the task is being typed.",
        "LMAGENT_PREWARM",
    ),
    Field(
        "vision_enabled",
        "choice",
        "Whether the model can see: auto asks the server.",
        "VISION_ENABLED",
        choices=("auto", "true", "false"),
    ),
    Field(
        "context_window",
        "integer",
        "The model's window in tokens. None: what the server says it serves.",
        "LMAGENT_CONTEXT_WINDOW",
        low=512,
        optional=True,
    ),
    Field(
        "summarization_threshold",
        "integer",
        "Prompt tokens at which a conversation is compacted at the latest.",
        "SUMMARIZATION_THRESHOLD",
        low=1000,
    ),
    Field(
        "keep_recent_tokens",
        "integer",
        "Tokens of recent messages that a compaction keeps.",
        "LMAGENT_KEEP_RECENT_TOKENS",
        low=0,
    ),
    Field(
        "tool_result_tokens",
        "integer",
        "Tokens of one tool result that the model is shown; the whole is kept as an artifact.",
        "LMAGENT_TOOL_RESULT_TOKENS",
        low=100,
    ),
    Field(
        "permission_mode",
        "choice",
        "auto allows everything; normal asks before writing, running and connecting; manual asks before everything.",
        "PERMISSION_MODE",
        "--permission",
        choices=("auto", "normal", "manual"),
        folder="stricter",
    ),
    Field(
        "permission_allow",
        "rules",
        "Rules for what needs no question. Lists of all layers add up.",
        "LMAGENT_PERMISSION_ALLOW",
        folder="trusted",
    ),
    Field(
        "permission_ask",
        "rules",
        "Rules for what is asked about in every mode. Lists of all layers add up.",
        "LMAGENT_PERMISSION_ASK",
    ),
    Field(
        "permission_deny",
        "rules",
        "Rules for what is forbidden in every mode. Lists of all layers add up.",
        "LMAGENT_PERMISSION_DENY",
    ),
    Field(
        "max_iterations",
        "integer",
        "Model calls in a turn.",
        "MAX_ITERATIONS",
        "--max-iterations",
        low=1,
        folder="smaller",
    ),
    Field(
        "max_turn_tokens",
        "integer",
        "Prompt and reply tokens in a turn.",
        "LMAGENT_MAX_TURN_TOKENS",
        low=1,
        optional=True,
        folder="smaller",
    ),
    Field(
        "max_turn_seconds",
        "number",
        "Wall time of a turn, in seconds.",
        "LMAGENT_MAX_TURN_SECONDS",
        low=1,
        optional=True,
        folder="smaller",
    ),
    Field(
        "max_session_tokens",
        "integer",
        "Prompt and reply tokens in a session.",
        "LMAGENT_MAX_SESSION_TOKENS",
        low=1,
        optional=True,
        folder="smaller",
    ),
    Field(
        "loop_repeats",
        "integer",
        "Identical calls and results before a hint; at twice that the call is withheld, at thrice the turn stops.",
        "LMAGENT_LOOP_REPEATS",
        low=1,
        high=100,
    ),
    Field(
        "max_no_progress_iters",
        "integer",
        "Steps without a new result before a turn stops.",
        "MAX_NO_PROGRESS_ITERS",
        low=1,
    ),
    Field("max_errors", "integer", "Failed calls in a row before a turn stops.", "MAX_ERRORS", low=1),
    Field(
        "max_empty_iterations", "integer", "Empty replies in a row before a turn stops.", "MAX_EMPTY_ITERATIONS", low=1
    ),
    Field(
        "max_nudges",
        "integer",
        "How often an announcement without a call is answered before the turn ends as incomplete.",
        "LMAGENT_MAX_NUDGES",
        low=0,
        high=20,
    ),
    Field(
        "enable_sub_agents",
        "switch",
        "Offer the tools that begin sub-agents.",
        "ENABLE_SUB_AGENTS",
        "--no-sub-agents",
    ),
    Field(
        "agent_max_depth",
        "integer",
        "How deep sub-agents may be nested; 1 lets only a person's session begin some.",
        "AGENT_MAX_DEPTH",
        low=1,
        high=8,
        folder="smaller",
    ),
    Field(
        "max_sub_agent_iterations",
        "integer",
        "Model calls of a sub-agent, less 4 for each depth and at least 8.",
        "MAX_SUB_AGENT_ITERATIONS",
        low=1,
        folder="smaller",
    ),
    Field(
        "brief_data_budget",
        "integer",
        "Characters of the parent's findings that a sub-agent is given which begins afresh.",
        "BRIEF_DATA_BUDGET",
        low=0,
        folder="smaller",
    ),
    Field("enable_todo_tracking", "switch", "Let the model keep a list of todos.", "ENABLE_TODO_TRACKING"),
    Field(
        "enable_plan_enforcement",
        "switch",
        "A turn is not done while steps of the approved plan are open.",
        "ENABLE_PLAN_ENFORCEMENT",
    ),
    Field(
        "approve_plans", "switch", "Approve plans unread.", "LMAGENT_APPROVE_PLANS", "--yes-plan", folder="elsewhere"
    ),
    Field("deep_planning", "switch", "Deep work begins with a plan.", "LMAGENT_DEEP_PLANNING", folder="trusted"),
    Field("deep_steps", "integer", "Model calls of deep work.", "LMAGENT_DEEP_STEPS", low=1, folder="smaller"),
    Field("deep_tokens", "integer", "Tokens of deep work.", "LMAGENT_DEEP_TOKENS", low=1, folder="smaller"),
    Field(
        "sandbox",
        "choice",
        "Where commands run: auto takes bubblewrap, else docker; landlock is degraded; off runs them unconfined.",
        "SANDBOX",
        "--sandbox",
        choices=("off", "landlock", "auto", "docker", "bubblewrap"),
        folder="elsewhere",
    ),
    Field(
        "sandbox_memory_mb",
        "integer",
        "Memory of one command with all it starts, in MiB; 0 is 2048, and 512 for all of a docker sandbox.",
        "LMAGENT_SANDBOX_MEMORY_MB",
        low=0,
        folder="elsewhere",
    ),
    Field(
        "sandbox_pids",
        "integer",
        "Processes and threads of one command; 0 is 256, and 128 for all of a docker sandbox.",
        "LMAGENT_SANDBOX_PIDS",
        low=0,
        folder="elsewhere",
    ),
    Field(
        "sandbox_read",
        "text",
        "More folders that commands may read, separated as in PATH. Installed toolchains are readable anyway.",
        "LMAGENT_SANDBOX_READ",
        folder="trusted",
    ),
    Field(
        "sandbox_image",
        "text",
        "Image of the docker sandbox; it needs sh and python3.",
        "LMAGENT_SANDBOX_IMAGE",
        folder="trusted",
    ),
    Field(
        "sandbox_hosts",
        "rules",
        "Hosts that commands may reach, as host:port or *.host; other hosts are asked about. Empty: no network.",
        "LMAGENT_SANDBOX_HOSTS",
        "--allow-host",
        folder="trusted",
    ),
    Field(
        "docker_network",
        "text",
        "Network of the docker sandbox; anything but none lets commands out without a proxy.",
        "DOCKER_NETWORK",
        folder="elsewhere",
    ),
    Field(
        "undo_mb",
        "integer",
        "What /undo may keep for a workspace, in MiB; 0 keeps nothing, so that nothing can be taken back.",
        "LMAGENT_UNDO_MB",
        low=0,
        folder="elsewhere",
    ),
    Field("no_color", "presence", "No colours in the terminal.", "NO_COLOR"),
    Field("plain", "switch", "Plain terminal output: no live status, no decoration.", "LMAGENT_PLAIN", "--plain"),
)

BY_NAME: dict[str, Field] = {field.name: field for field in FIELDS}
