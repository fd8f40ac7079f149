"""Settings: the one table of settings, from which the variables, the errors and `docs/configuration.md` are made.

Defaults come from the older systems whose variables are read; where they differ, from the newer system.
"""

# Without `from __future__ import annotations`: `declared` reads the types, which would be slow as texts.

from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from lmagent.config.setting import declared, setting
from lmagent.core.agent import TurnLimits, Window
from lmagent.core.events import PermissionMode

DEFAULT_URL = "http://localhost:1234/v1/chat/completions"
"""LM Studio's default address."""

OPENROUTER_URL = "https://openrouter.ai/api/v1"

PROVIDERS = {
    "lmstudio": "http://localhost:1234/v1",
    "ollama": "http://localhost:11434/v1",
    "llamacpp": "http://localhost:8080/v1",
    "vllm": "http://localhost:8000/v1",
    "openrouter": OPENROUTER_URL,
}
"""Model servers by name, with their usual addresses."""

PLACEHOLDER_KEYS = frozenset({"", "lm-studio", "ollama", "not-needed", "no-key-required", "none", "EMPTY"})
"""Values that local servers accept as a key; they are no secrets."""


class Settings(Struct, frozen=True):
    """The user's settings. `workspace` and `agent_data_dir` are absolute in the loader's result."""

    # fmt: off
    workspace: Path = setting(Path(), "WORKSPACE", flag="--workspace",
        help="The folder the agent works in. Unset: the current folder; `~/lm_workspace` from the home folder or `/`.")
    agent_data_dir: Path = setting(Path(), "AGENT_DATA_DIR", folder="elsewhere",
        help="Folder for data of no workspace, such as the list of trusted folders. Unset: the platform's data folder.")

    llm_url: str = setting("", "LLM_URL AGENT_MODEL_URL LM_API_URL", kind="url", flag="--base-url", folder="endpoint",
        help="The model server: a base URL or the full chat URL. Unset: lmagent looks for a server on this machine.")
    llm_base_url: str = setting("", "LLM_BASE_URL", kind="url", folder="endpoint",
        help="The model server's base URL; used where `llm_url` is unset.")
    llm_api_key: str = setting("lm-studio", "LLM_API_KEY AGENT_MODEL_API_KEY LM_API_KEY",
        kind="secret", folder="endpoint",
        help="The key for the model server; a local one takes anything.")
    openrouter_api_key: str = setting("", "OPENROUTER_API_KEY", kind="secret", folder="trusted",
        help="The key for OpenRouter, which is used when this is set and no URL is. It is sent to OpenRouter only.")
    llm_model: str = setting("", "LLM_MODEL AGENT_MODEL", flag="--model",
        help="The model to ask for. Empty: the model that the server has loaded.")
    llm_temperature: float | None = setting(0.65, "LLM_TEMPERATURE TEMPERATURE AGENT_TEMPERATURE", bounds=(0, 5),
        help="Sampling temperature; none leaves it to the server.")
    llm_max_tokens: int | None = setting(None, "LLM_MAX_TOKENS AGENT_MAX_TOKENS", bounds=(1, None),
        help="Cap on one reply, in tokens; none leaves it to the server.")
    llm_timeout: float = setting(560.0, "LLM_TIMEOUT", bounds=(0.1, 86400),
        help="Seconds without any sign of life from the model server before a request fails; from the default "
             "on, a long prompt gets 0.1 s a token more.")
    llm_max_retries: int = setting(3, "LLM_MAX_RETRIES", bounds=(0, 100),
        help="How often a failed request is tried again.")
    llm_retry_delay: float = setting(3.0, "LLM_RETRY_DELAY", bounds=(0, 3600),
        help="Seconds before the first retry; later ones wait longer.")
    thinking_model: bool | None = setting(None, "THINKING_MODEL",
        help="Leave thoughts out of the messages that go back to the model. None: as suits the model.")
    prewarm: bool = setting(True, "LMAGENT_PREWARM",
        help="Let a local server read the fixed part of the prompt while the task is being typed.")
    vision_enabled: Literal["auto", "true", "false"] = setting("auto", "VISION_ENABLED",
        help="Whether the model can see: auto asks the server.")

    context_window: int | None = setting(None, "LMAGENT_CONTEXT_WINDOW", bounds=(512, None),
        help="The model's window in tokens. None: the window that the server reports.")
    summarization_threshold: int = setting(80000, "SUMMARIZATION_THRESHOLD", bounds=(1000, None),
        help="Prompt tokens at which a conversation is compacted at the latest.")
    keep_recent_tokens: int = setting(16000, "LMAGENT_KEEP_RECENT_TOKENS", bounds=(0, None),
        help="Tokens of recent messages that a compaction keeps.")
    tool_result_tokens: int | None = setting(None, "LMAGENT_TOOL_RESULT_TOKENS", bounds=(100, None),
        help="Tokens of one tool result that the model is shown; none is an eighth of the window, 50 kB at most. The "
             "whole is kept as an artifact.")

    permission_mode: PermissionMode = setting("normal", "PERMISSION_MODE", flag="--permission", folder="stricter",
        help="auto allows everything; normal asks before writing, running, connecting; manual asks before everything.")
    permission_allow: tuple[str, ...] = setting((), "LMAGENT_PERMISSION_ALLOW", folder="trusted",
        help="Rules for calls that are allowed without a question. Lists of all layers add up.")
    permission_ask: tuple[str, ...] = setting((), "LMAGENT_PERMISSION_ASK",
        help="Rules for calls that need a question in every mode. Lists of all layers add up.")
    permission_deny: tuple[str, ...] = setting((), "LMAGENT_PERMISSION_DENY",
        help="Rules for calls that are forbidden in every mode. Lists of all layers add up.")

    max_iterations: int = setting(500, "MAX_ITERATIONS AGENT_MAX_STEPS",
        flag="--max-iterations", bounds=(1, None), folder="smaller", help="Model calls in a turn.")
    max_turn_tokens: int | None = setting(None, "LMAGENT_MAX_TURN_TOKENS", bounds=(1, None), folder="smaller",
        help="Prompt and reply tokens in a turn.")
    max_turn_seconds: float | None = setting(None, "LMAGENT_MAX_TURN_SECONDS", bounds=(1, None), folder="smaller",
        help="Wall time of a turn, in seconds.")
    max_session_tokens: int | None = setting(None, "LMAGENT_MAX_SESSION_TOKENS", bounds=(1, None), folder="smaller",
        help="Prompt and reply tokens in a session.")
    loop_repeats: int = setting(3, "LMAGENT_LOOP_REPEATS MAX_SAME_TOOL_STREAK", bounds=(1, 100),
        help="Identical calls and results before a hint; at twice that the call is withheld, at thrice the turn stops.")
    max_no_progress_iters: int = setting(15, "MAX_NO_PROGRESS_ITERS", bounds=(1, None),
        help="Steps without a new result before a turn stops.")
    max_errors: int = setting(5, "MAX_ERRORS", bounds=(1, None),
        help="Replies in a row in which every call failed, before a turn stops.")
    max_empty_iterations: int = setting(5, "MAX_EMPTY_ITERATIONS", bounds=(1, None),
        help="Empty replies in a row before a turn stops.")
    max_nudges: int = setting(2, "LMAGENT_MAX_NUDGES", bounds=(0, 20),
        help="How often an announcement without a call is answered before the turn ends as incomplete.")

    enable_memory: bool = setting(True, "ENABLE_MEMORY", folder="stricter",
        help="Offer the tools of the memory, and put its pinned part into the prompt of new sessions.")
    reflection: Literal["off", "idle", "daily"] = setting("off", "LMAGENT_REFLECTION", folder="elsewhere",
        help="Let the model read finished sessions and store facts: whenever lmagent web or a scheduler is idle, once "
             "a day, or only on request.")
    reflection_model: str = setting("", "LMAGENT_REFLECTION_MODEL", folder="elsewhere",
        help="The model that reflects. Empty: the one of the sessions.")
    embedding_url: str = setting("", "EMBEDDING_BASE_URL", kind="url", folder="endpoint",
        help="A server of `/v1/embeddings`, for the search by meaning. Empty: the extra `embed`, else words alone.")
    embedding_model: str = setting("", "EMBEDDING_MODEL", folder="endpoint",
        help="The model to ask `embedding_url` for.")

    cluster_url: str = setting("", "LMAGENT_CLUSTER_URL", kind="secret", folder="elsewhere",
        help="PostgreSQL that keeps the sessions and the queue of many workers: `postgresql://user:password@host/db`.")
    cluster_workspace: str = setting("", "LMAGENT_CLUSTER_WORKSPACE", folder="elsewhere",
        help="The name of the workspace in the cluster. Empty: its folder's name.")
    cluster_objects: str = setting("", "LMAGENT_CLUSTER_OBJECTS", folder="elsewhere",
        help="S3-compatible storage for a cluster's large results: `s3://bucket/prefix`, with keys and endpoint in the "
             "`AWS_` variables. Empty: all are in the database.")
    cluster_retention_days: int = setting(0, "LMAGENT_CLUSTER_RETENTION_DAYS", bounds=(0, 36500), folder="elsewhere",
        help="Days after which a cluster deletes a session that is idle and not pinned. 0 keeps all.")

    skill_timeout: int = setting(60, "LMAGENT_SKILL_TIMEOUT", bounds=(1, 3600), folder="smaller",
        help="Seconds after which a call of a Python skill is stopped.")

    enable_sub_agents: bool = setting(True, "ENABLE_SUB_AGENTS", flag="--no-sub-agents",
        help="Offer the tools that begin sub-agents.")
    enable_mcp: bool = setting(True, "ENABLE_MCP", flag="--no-mcp", folder="stricter",
        help="Use the MCP servers that are configured.")
    agent_max_depth: int = setting(3, "AGENT_MAX_DEPTH", bounds=(1, 8), folder="smaller",
        help="How deep sub-agents may be nested; 1 lets only the user's session begin some.")
    max_sub_agent_iterations: int = setting(25, "MAX_SUB_AGENT_ITERATIONS", bounds=(1, None), folder="smaller",
        help="Model calls of a sub-agent, less 4 for each depth and at least 8.")
    brief_data_budget: int = setting(8000, "BRIEF_DATA_BUDGET", bounds=(0, None), folder="smaller",
        help="Characters of the parent's findings that a new sub-agent receives.")

    enable_todo_tracking: bool = setting(True, "ENABLE_TODO_TRACKING",
        help="Let the model keep a list of todos.")
    enable_plan_enforcement: bool = setting(True, "ENABLE_PLAN_ENFORCEMENT",
        help="A turn is not done while steps of the approved plan are open.")
    approve_plans: bool = setting(False, "LMAGENT_APPROVE_PLANS", flag="--yes-plan", folder="elsewhere",
        help="Approve plans unread.")
    deep_planning: bool = setting(True, "LMAGENT_DEEP_PLANNING", folder="trusted",
        help="Deep work begins with a plan.")
    deep_steps: int = setting(200, "LMAGENT_DEEP_STEPS", bounds=(1, None), folder="smaller",
        help="Model calls of deep work.")
    deep_tokens: int = setting(1_500_000, "LMAGENT_DEEP_TOKENS", bounds=(1, None), folder="smaller",
        help="Tokens of deep work.")

    sandbox: Literal["off", "landlock", "auto", "docker", "bubblewrap"] = setting("auto", "SANDBOX FORCE_DOCKER",
        flag="--sandbox", folder="elsewhere",
        help="Where commands run: auto takes bubblewrap, else docker; landlock is degraded; off runs them unconfined.")
    sandbox_memory_mb: int = setting(0, "LMAGENT_SANDBOX_MEMORY_MB", bounds=(0, None), folder="elsewhere",
        help="Memory of one command with all it starts, in MiB; 0 is 2048, and 512 for all of a docker sandbox.")
    sandbox_pids: int = setting(0, "LMAGENT_SANDBOX_PIDS", bounds=(0, None), folder="elsewhere",
        help="Processes and threads of one command; 0 is 256, and 128 for all of a docker sandbox.")
    sandbox_read: str = setting("", "LMAGENT_SANDBOX_READ", folder="trusted",
        help="More folders that commands may read, separated as in PATH. Installed toolchains are readable anyway.")
    sandbox_image: str = setting("lmagent-sandbox", "LMAGENT_SANDBOX_IMAGE", folder="trusted",
        help="Image of the docker sandbox; it needs sh and python3.")
    sandbox_hosts: tuple[str, ...] = setting((), "LMAGENT_SANDBOX_HOSTS", flag="--allow-host", folder="trusted",
        help="Hosts that commands may reach, as host:port or *.host, and packages for the registries of PyPI, npm and "
             "Debian; other hosts are asked about. Empty: no network, and one question for packages.")
    docker_network: str = setting("none", "DOCKER_NETWORK", folder="elsewhere",
        help="Network of the docker sandbox; anything but none lets commands out without a proxy.")
    undo_mb: int = setting(2048, "LMAGENT_UNDO_MB", bounds=(0, None), folder="elsewhere",
        help="Most that /undo keeps for a workspace, in MiB; 0 keeps nothing, so that no change can be undone.")

    scheduler_poll_interval: float = setting(0.5, "SCHEDULER_POLL_INTERVAL",
        flag="--scheduler-interval", bounds=(0.1, 3600),
        help="Seconds between two looks at the inbox and at others' sessions; waits and cron jobs are on time anyway.")
    scheduler_lanes: int = setting(8, "LMAGENT_SCHEDULER_LANES", flag="--lanes", bounds=(1, 256),
        help="Sessions that a scheduler runs at once.")
    scheduler_in_chat: bool = setting(True, "LMAGENT_SCHEDULER_IN_CHAT",
        help="A chat in a trusted folder also does the work that is due there: waits, the inbox, cron jobs.")

    check: Literal["off", "ask", "auto"] = setting("off", "LMAGENT_CHECK", folder="trusted",
        help="Run the project's check when a turn that changed files ends: off, ask (needs permission), auto.")
    check_timeout: int = setting(600, "LMAGENT_CHECK_TIMEOUT", bounds=(1, None), folder="trusted",
        help="Seconds after which the project's check is stopped.")
    require_proof: bool = setting(False, "REQUIRE_PROOF", flag="--require-proof", folder="trusted",
        help="A turn that changed files is not done before a check has passed; sets check to auto.")
    check_commands: tuple[str, ...] = setting((), "CHECK_COMMANDS", folder="trusted",
        help='Commands that check the project, such as ["make check"]; by default, Makefile, package.json … name it.')

    llm_parallel: int | None = setting(None, "LLM_PARALLEL", bounds=(1, 1000),
        help="Sessions that a local server can serve side by side, each with its own prompt cache, if the server does "
             "not report it. None: one at a time on LM Studio, Ollama and unknown servers; the others wait for the "
             "turn to end.")
    system: str = setting("", "LMAGENT_SYSTEM", folder="trusted",
        help="A system prompt of your own, instead of lmagent's.")
    llm_top_p: float | None = setting(None, "LLM_TOP_P", bounds=(0, 1),
        help="Nucleus sampling; none leaves it to the server.")
    llm_frequency_penalty: float | None = setting(None, "LLM_FREQUENCY_PENALTY", bounds=(-2, 2),
        help="Penalty for tokens by how often they have occurred; none leaves it to the server.")
    llm_presence_penalty: float | None = setting(None, "LLM_PRESENCE_PENALTY", bounds=(-2, 2),
        help="Penalty for tokens that have occurred; none leaves it to the server.")
    llm_seed: int | None = setting(None, "LLM_SEED", bounds=(0, None),
        help="Seed of the sampling, for equal answers to equal requests where the server can; none leaves it to the "
             "server.")
    bounded_steps: int = setting(15, "LMAGENT_BOUNDED_STEPS", bounds=(1, None), folder="smaller",
        help="Model calls of a turn in bounded work (`/work bounded`, and chats of earlier clients).")
    tools_allow: tuple[str, ...] = setting((), "LMAGENT_TOOLS_ALLOW", folder="trusted",
        help="Names of the only tools that sessions have. Empty: all.")
    enable_shell: bool = setting(True, "AGENT_ENABLE_SHELL", folder="stricter",
        help="Offer the tools that run commands: shell and its background jobs.")
    enable_files: bool = setting(True, "AGENT_ENABLE_FILES", folder="stricter",
        help="Offer the tools for files: read, write, edit, glob, grep, ls, mkdir, vision.")
    enable_fetch: bool = setting(True, "AGENT_ENABLE_FETCH", folder="stricter",
        help="Offer the tools that fetch from the web.")
    fetch_stealth: bool = setting(False, "FETCH_STEALTH", folder="elsewhere",
        help="Offer `web_fetch_stealth`, which asks for pages as a browser does; needs the extra `stealth`.")
    browser: str = setting("", "LMAGENT_BROWSER", folder="elsewhere",
        help="Path of the Chromium that reads and draws web pages in the sandbox. Empty: one found on this machine.")
    search_endpoint: str = setting("", "SEARCH_ENDPOINT", kind="url", folder="elsewhere",
        help="The SearXNG that `web_search` asks, such as http://127.0.0.1:8888; its JSON format must be switched on. "
             "Empty: there is no `web_search`.")
    enable_data_view: bool = setting(True, "AGENT_ENABLE_DATA_VIEW", folder="stricter",
        help="Offer the tool that looks into tables.")
    enable_python: bool = setting(True, "AGENT_ENABLE_PYEXE", folder="stricter",
        help="Offer the tool that runs Python.")

    web_host: str = setting("127.0.0.1", "AGENT_HOST", flag="--bind", folder="trusted",
        help="The address that `lmagent web` listens on. An address that other machines reach needs `--lan`.")
    web_port: int = setting(7860, "AGENT_PORT", flag="--port", bounds=(0, 65535), folder="trusted",
        help="Its port; 0 takes a free one.")
    web_pin: str = setting("", "AGENT_PIN", kind="secret", folder="trusted",
        help="PIN that a browser logs in with. Unset: six digits, new at each start; with cluster_url, the cluster's.")
    web_token: str = setting("", "AGENT_TOKEN", kind="secret", folder="trusted",
        help="Bearer token that programs send. Unset: made once, and kept; with cluster_url, the cluster's.")
    web_cert: str = setting("", "AGENT_CERT", flag="--cert", folder="trusted",
        help="Certificate chain for TLS, a PEM file.")
    web_key: str = setting("", "AGENT_KEY", flag="--key", folder="trusted",
        help="The certificate's key, a PEM file; unset if both are in one file.")
    mcp_serve: bool = setting(False, "LMAGENT_MCP_SERVE", flag="--mcp-serve", folder="trusted",
        help="Let programs with the token use the tools and the agent at `/mcp` of `lmagent web` (docs/mcp-server.md).")
    approval_timeout: float = setting(86_400.0, "LMAGENT_APPROVAL_TIMEOUT", bounds=(1, 31_536_000),
        help="Seconds for which an approval waits for an answer in the gateway; then it counts as denied.")

    no_color: bool = setting(False, "NO_COLOR", kind="presence",
        help="No colours in the terminal.")
    plain: bool = setting(False, "LMAGENT_PLAIN", flag="--plain",
        help="Plain terminal output: no live status, no decoration.")
    shipped_rules: bool = setting(True, "LMAGENT_SHIPPED_RULES", folder="trusted",
        help="Ask before files that may hold secrets are read, and refuse commands that wipe a disk or the workspace.")
    theme: Literal["auto", "light", "dark", "none"] = setting("auto", "LMAGENT_THEME",
        help="Colours of the terminal: for a light or a dark background, or none. `/theme` changes it.")
    log_level: Literal["trace", "debug", "info", "warn", "warning", "error"] = setting(
        "error", "AGENT_LOG_LEVEL", flag="--log-level",
        help="What goes to .lmagent/logs/lmagent.log of the workspace: error (unexpected errors), warning (retries, "
             "notices), info (turns, tools, model calls), debug (each request by size and time), trace (the requests "
             "to the model and its answers); contents only with trace, keys never.")
    debug: bool = setting(False, "LMAGENT_DEBUG", flag="--debug", folder="elsewhere",
        help="Log at level debug, or at trace if `log_level` says so, and print it to standard error too.")
    own_shell: bool = setting(False, "OWN_SHELL", folder="elsewhere",
        help="Run `!COMMAND` of the terminal in your own shell, outside the sandbox, and do not ask about `!!COMMAND`.")
    claude_hooks: bool = setting(False, "CLAUDE_HOOKS", folder="elsewhere",
        help="Run the hooks of ~/.claude/settings.json too, which you wrote for another program.")
    notify_command: str = setting("", "NOTIFY_COMMAND", folder="elsewhere",
        help="A command of yours that is run when an approval or a plan waits for you, or a turn has ended. It runs as"
             " you, outside of the sandbox, with LMAGENT_EVENT (approval, plan, finished), LMAGENT_OUTCOME, "
             "LMAGENT_SESSION, LMAGENT_TITLE, LMAGENT_TEXT and LMAGENT_WORKSPACE.")
    notify_bell: bool = setting(True, "NOTIFY_BELL",
        help="Ring the terminal's bell on the same occasions.")
    notify_after: float = setting(10.0, "NOTIFY_AFTER", bounds=(0, None),
        help="Seconds after your last input during which you count as present and are not notified.")
    # fmt: on

    @property
    def endpoint(self) -> str:
        """The model server's URL, base or full; OpenRouter's if only its key was given."""
        return self.given_endpoint or DEFAULT_URL

    @property
    def given_endpoint(self) -> str:
        """The model server's URL if one is set; if it is empty, a running server may be looked for."""
        return self.llm_url or self.llm_base_url or (OPENROUTER_URL if self.openrouter_api_key else "")

    @property
    def key(self) -> str:
        """The key for `endpoint`. The OpenRouter key goes to OpenRouter and nowhere else."""
        if self.openrouter_api_key and self.endpoint.lower().startswith("https://openrouter.ai/"):
            return self.openrouter_api_key
        return self.llm_api_key

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must reach no prompt, log or event."""
        values = [self.llm_api_key, self.openrouter_api_key, self.web_token]
        if password := self.cluster_url.partition("://")[2].rpartition("@")[0].partition(":")[2]:
            from urllib.parse import unquote  # few users have a cluster

            values += [password, unquote(password)]
        return tuple(value for value in dict.fromkeys(values) if value not in PLACEHOLDER_KEYS)

    @property
    def limits(self) -> TurnLimits:
        return TurnLimits(
            steps=self.max_iterations,
            bounded=self.bounded_steps,
            turn_tokens=self.max_turn_tokens,
            turn_seconds=self.max_turn_seconds,
            session_tokens=self.max_session_tokens,
            nudges=self.max_nudges,
            repeats=self.loop_repeats,
            errors=self.max_errors,
            empties=self.max_empty_iterations,
            no_progress=self.max_no_progress_iters,
        )

    def window(self, served: int | None) -> Window:
        """Return the context limits; `served` is the window that the server reports."""
        tokens = self.context_window or served or Window().tokens
        return Window(
            tokens=tokens,
            threshold=self.summarization_threshold,
            keep_recent=self.keep_recent_tokens,
            result_cap=self.tool_result_tokens,
        )

    def __repr__(self) -> str:
        """Return the settings without their secrets, so that no traceback and no debug line shows a key."""
        values = [(each, getattr(self, each.name)) for each in SETTINGS]
        shown = [
            (each.name, "***" if each.secret and value not in PLACEHOLDER_KEYS else value) for each, value in values
        ]
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown)})"


SETTINGS = declared(Settings)
"""All settings, in the order of the documentation."""

BY_NAME = {each.name: each for each in SETTINGS}

DEFAULTS: dict[str, Any] = {each.name: each.default for each in SETTINGS}
