"""Settings: the one table of settings. The variables, the errors and `docs/configuration.md` are made from it.

Defaults are those of the older systems whose variables are read; where those disagree, the newer system's.
"""

# Without `from __future__ import annotations`: `declared` reads the types, which texts would make slow.

from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from lmagent.config.setting import declared, setting
from lmagent.core.agent import Limits, Window
from lmagent.core.events import PermissionMode

DEFAULT_URL = "http://localhost:1234/v1/chat/completions"
"""Where LM Studio listens unless it is told otherwise."""

OPENROUTER_URL = "https://openrouter.ai/api/v1"

PROVIDERS = {
    "lmstudio": "http://localhost:1234/v1",
    "ollama": "http://localhost:11434/v1",
    "llamacpp": "http://localhost:8080/v1",
    "vllm": "http://localhost:8000/v1",
    "openrouter": OPENROUTER_URL,
}
"""Model servers by name, and where they usually are."""

PLACEHOLDER_KEYS = frozenset({"", "lm-studio", "ollama", "not-needed", "no-key-required", "none", "EMPTY"})
"""Values that local servers accept as a key; they are no secrets."""


class Settings(Struct, frozen=True):
    """What the user has set. `workspace` and `agent_data_dir` are absolute in the settings that the loader returns."""

    workspace: Path = setting(
        Path(),
        "WORKSPACE",
        "The folder the agent works in. Unset: the current folder; `~/lm_workspace` from the home folder or `/`.",
        flag="--workspace",
    )
    agent_data_dir: Path = setting(
        Path(),
        "AGENT_DATA_DIR",
        "Where data of no workspace is kept, such as the list of trusted folders. Unset: the platform's data folder.",
        folder="elsewhere",
    )

    llm_url: str = setting(
        "",
        "LLM_URL AGENT_MODEL_URL LM_API_URL",
        "The model server: a base URL or the full chat URL. Unset: a server running on this machine is looked for.",
        kind="url",
        flag="--base-url",
        folder="endpoint",
    )
    llm_base_url: str = setting(
        "", "LLM_BASE_URL", "The model server's base URL; used where `llm_url` is unset.", kind="url", folder="endpoint"
    )
    llm_api_key: str = setting(
        "lm-studio",
        "LLM_API_KEY AGENT_MODEL_API_KEY LM_API_KEY",
        "The key for the model server; a local one takes anything.",
        kind="secret",
        folder="endpoint",
    )
    openrouter_api_key: str = setting(
        "",
        "OPENROUTER_API_KEY",
        "The key for OpenRouter, which is used when this is set and no URL is. It is sent to OpenRouter only.",
        kind="secret",
        folder="trusted",
    )
    llm_model: str = setting(
        "", "LLM_MODEL AGENT_MODEL", "The model to ask for. Empty: what the server has loaded.", flag="--model"
    )
    llm_temperature: float | None = setting(
        0.65,
        "LLM_TEMPERATURE TEMPERATURE AGENT_TEMPERATURE",
        "Sampling temperature; none leaves it to the server.",
        bounds=(0, 5),
    )
    llm_max_tokens: int | None = setting(
        None,
        "LLM_MAX_TOKENS AGENT_MAX_TOKENS",
        "Cap on one reply, in tokens; none leaves it to the server.",
        bounds=(1, None),
    )
    llm_timeout: float = setting(
        560.0,
        "LLM_TIMEOUT",
        "Seconds without any sign of life from the model server before a request is given up; from the default on, a "
        "long prompt is given 0.1 s a token to be read in silence.",
        bounds=(0.1, 86400),
    )
    llm_max_retries: int = setting(3, "LLM_MAX_RETRIES", "How often a failed request is tried again.", bounds=(0, 100))
    llm_retry_delay: float = setting(
        3.0, "LLM_RETRY_DELAY", "Seconds before the first retry; later ones wait longer.", bounds=(0, 3600)
    )
    thinking_model: bool | None = setting(
        None, "THINKING_MODEL", "Strip thoughts from what is fed back to the model. None: what suits the model."
    )
    prewarm: bool = setting(
        True, "LMAGENT_PREWARM", "Let a local server read the fixed part of the prompt while the task is being typed."
    )
    vision_enabled: Literal["auto", "true", "false"] = setting(
        "auto", "VISION_ENABLED", "Whether the model can see: auto asks the server."
    )

    context_window: int | None = setting(
        None,
        "LMAGENT_CONTEXT_WINDOW",
        "The model's window in tokens. None: what the server says it serves.",
        bounds=(512, None),
    )
    summarization_threshold: int = setting(
        80000,
        "SUMMARIZATION_THRESHOLD",
        "Prompt tokens at which a conversation is compacted at the latest.",
        bounds=(1000, None),
    )
    keep_recent_tokens: int = setting(
        16000, "LMAGENT_KEEP_RECENT_TOKENS", "Tokens of recent messages that a compaction keeps.", bounds=(0, None)
    )
    tool_result_tokens: int | None = setting(
        None,
        "LMAGENT_TOOL_RESULT_TOKENS",
        "Tokens of one tool result that the model is shown; none is an eighth of the window, 50 kB at most. The whole"
        " is kept as an artifact.",
        bounds=(100, None),
    )

    permission_mode: PermissionMode = setting(
        "normal",
        "PERMISSION_MODE",
        "auto allows everything; normal asks before writing, running and connecting; manual asks before everything.",
        flag="--permission",
        folder="stricter",
    )
    permission_allow: tuple[str, ...] = setting(
        (),
        "LMAGENT_PERMISSION_ALLOW",
        "Rules for what needs no question. Lists of all layers add up.",
        folder="trusted",
    )
    permission_ask: tuple[str, ...] = setting(
        (), "LMAGENT_PERMISSION_ASK", "Rules for what is asked about in every mode. Lists of all layers add up."
    )
    permission_deny: tuple[str, ...] = setting(
        (), "LMAGENT_PERMISSION_DENY", "Rules for what is forbidden in every mode. Lists of all layers add up."
    )

    max_iterations: int = setting(
        500,
        "MAX_ITERATIONS AGENT_MAX_STEPS",
        "Model calls in a turn.",
        flag="--max-iterations",
        bounds=(1, None),
        folder="smaller",
    )
    max_turn_tokens: int | None = setting(
        None, "LMAGENT_MAX_TURN_TOKENS", "Prompt and reply tokens in a turn.", bounds=(1, None), folder="smaller"
    )
    max_turn_seconds: float | None = setting(
        None, "LMAGENT_MAX_TURN_SECONDS", "Wall time of a turn, in seconds.", bounds=(1, None), folder="smaller"
    )
    max_session_tokens: int | None = setting(
        None, "LMAGENT_MAX_SESSION_TOKENS", "Prompt and reply tokens in a session.", bounds=(1, None), folder="smaller"
    )
    loop_repeats: int = setting(
        3,
        "LMAGENT_LOOP_REPEATS MAX_SAME_TOOL_STREAK",
        "Identical calls and results before a hint; at twice that the call is withheld, at thrice the turn stops.",
        bounds=(1, 100),
    )
    max_no_progress_iters: int = setting(
        15, "MAX_NO_PROGRESS_ITERS", "Steps without a new result before a turn stops.", bounds=(1, None)
    )
    max_errors: int = setting(
        5, "MAX_ERRORS", "Replies in a row in which every call failed, before a turn stops.", bounds=(1, None)
    )
    max_empty_iterations: int = setting(
        5, "MAX_EMPTY_ITERATIONS", "Empty replies in a row before a turn stops.", bounds=(1, None)
    )
    max_nudges: int = setting(
        2,
        "LMAGENT_MAX_NUDGES",
        "How often an announcement without a call is answered before the turn ends as incomplete.",
        bounds=(0, 20),
    )

    enable_sub_agents: bool = setting(
        True, "ENABLE_SUB_AGENTS", "Offer the tools that begin sub-agents.", flag="--no-sub-agents"
    )
    agent_max_depth: int = setting(
        3,
        "AGENT_MAX_DEPTH",
        "How deep sub-agents may be nested; 1 lets only a person's session begin some.",
        bounds=(1, 8),
        folder="smaller",
    )
    max_sub_agent_iterations: int = setting(
        25,
        "MAX_SUB_AGENT_ITERATIONS",
        "Model calls of a sub-agent, less 4 for each depth and at least 8.",
        bounds=(1, None),
        folder="smaller",
    )
    brief_data_budget: int = setting(
        8000,
        "BRIEF_DATA_BUDGET",
        "Characters of the parent's findings that a sub-agent is given which begins afresh.",
        bounds=(0, None),
        folder="smaller",
    )

    enable_todo_tracking: bool = setting(True, "ENABLE_TODO_TRACKING", "Let the model keep a list of todos.")
    enable_plan_enforcement: bool = setting(
        True, "ENABLE_PLAN_ENFORCEMENT", "A turn is not done while steps of the approved plan are open."
    )
    approve_plans: bool = setting(
        False, "LMAGENT_APPROVE_PLANS", "Approve plans unread.", flag="--yes-plan", folder="elsewhere"
    )
    deep_planning: bool = setting(True, "LMAGENT_DEEP_PLANNING", "Deep work begins with a plan.", folder="trusted")
    deep_steps: int = setting(
        200, "LMAGENT_DEEP_STEPS", "Model calls of deep work.", bounds=(1, None), folder="smaller"
    )
    deep_tokens: int = setting(
        1_500_000, "LMAGENT_DEEP_TOKENS", "Tokens of deep work.", bounds=(1, None), folder="smaller"
    )

    sandbox: Literal["off", "landlock", "auto", "docker", "bubblewrap"] = setting(
        "auto",
        "SANDBOX FORCE_DOCKER",
        "Where commands run: auto takes bubblewrap, else docker; landlock is degraded; off runs them unconfined.",
        flag="--sandbox",
        folder="elsewhere",
    )
    sandbox_memory_mb: int = setting(
        0,
        "LMAGENT_SANDBOX_MEMORY_MB",
        "Memory of one command with all it starts, in MiB; 0 is 2048, and 512 for all of a docker sandbox.",
        bounds=(0, None),
        folder="elsewhere",
    )
    sandbox_pids: int = setting(
        0,
        "LMAGENT_SANDBOX_PIDS",
        "Processes and threads of one command; 0 is 256, and 128 for all of a docker sandbox.",
        bounds=(0, None),
        folder="elsewhere",
    )
    sandbox_read: str = setting(
        "",
        "LMAGENT_SANDBOX_READ",
        "More folders that commands may read, separated as in PATH. Installed toolchains are readable anyway.",
        folder="trusted",
    )
    sandbox_image: str = setting(
        "lmagent-sandbox",
        "LMAGENT_SANDBOX_IMAGE",
        "Image of the docker sandbox; it needs sh and python3.",
        folder="trusted",
    )
    sandbox_hosts: tuple[str, ...] = setting(
        (),
        "LMAGENT_SANDBOX_HOSTS",
        "Hosts that commands may reach, as host:port or *.host; other hosts are asked about. Empty: no network.",
        flag="--allow-host",
        folder="trusted",
    )
    docker_network: str = setting(
        "none",
        "DOCKER_NETWORK",
        "Network of the docker sandbox; anything but none lets commands out without a proxy.",
        folder="elsewhere",
    )
    undo_mb: int = setting(
        2048,
        "LMAGENT_UNDO_MB",
        "What /undo may keep for a workspace, in MiB; 0 keeps nothing, so that nothing can be taken back.",
        bounds=(0, None),
        folder="elsewhere",
    )

    scheduler_poll_interval: float = setting(
        0.5,
        "SCHEDULER_POLL_INTERVAL",
        "Seconds between two looks at the inbox and at others' sessions; waits and cron jobs are on time anyway.",
        flag="--scheduler-interval",
        bounds=(0.1, 3600),
    )
    scheduler_lanes: int = setting(
        8, "LMAGENT_SCHEDULER_LANES", "Sessions that a scheduler runs at once.", bounds=(1, 256)
    )
    scheduler_in_chat: bool = setting(
        True,
        "LMAGENT_SCHEDULER_IN_CHAT",
        "A chat in a trusted folder also does what is due there: waits, the inbox, cron jobs.",
    )

    require_proof: bool = setting(
        False,
        "REQUIRE_PROOF",
        "A turn that changed files is not done before a check ran after the last change and passed.",
        flag="--require-proof",
        folder="trusted",
    )
    check_commands: tuple[str, ...] = setting(
        (),
        "CHECK_COMMANDS",
        'Commands that check the work, such as ["make check"], besides the runners that are known.',
        folder="trusted",
    )

    llm_parallel: int | None = setting(
        None,
        "LLM_PARALLEL",
        "Sessions that a local server can serve side by side, each with its own prompt cache, if the server does not "
        "report it. None: one at a time on LM Studio, Ollama and unknown servers; the others wait for the turn to "
        "end.",
        bounds=(1, 1000),
    )
    system: str = setting(
        "", "LMAGENT_SYSTEM", "A system text of your own, instead of the one that suits the window.", folder="trusted"
    )
    llm_top_p: float | None = setting(
        None, "LLM_TOP_P", "Nucleus sampling; none leaves it to the server.", bounds=(0, 1)
    )
    llm_frequency_penalty: float | None = setting(
        None,
        "LLM_FREQUENCY_PENALTY",
        "Penalty for tokens by how often they came; none leaves it to the server.",
        bounds=(-2, 2),
    )
    llm_presence_penalty: float | None = setting(
        None,
        "LLM_PRESENCE_PENALTY",
        "Penalty for tokens that came at all; none leaves it to the server.",
        bounds=(-2, 2),
    )
    llm_seed: int | None = setting(
        None,
        "LLM_SEED",
        "Seed of the sampling, for equal answers to equal requests where the server can; none leaves it to the server.",
        bounds=(0, None),
    )
    bounded_steps: int = setting(
        15,
        "LMAGENT_BOUNDED_STEPS",
        "Model calls of a turn in bounded work (`/work bounded`, and chats of earlier clients).",
        bounds=(1, None),
        folder="smaller",
    )
    tools_allow: tuple[str, ...] = setting(
        (), "LMAGENT_TOOLS_ALLOW", "Names of the only tools that sessions have. Empty: all.", folder="trusted"
    )
    enable_shell: bool = setting(
        True,
        "AGENT_ENABLE_SHELL",
        "Offer the tools that run commands: shell and its background jobs.",
        folder="stricter",
    )
    enable_files: bool = setting(
        True,
        "AGENT_ENABLE_FILES",
        "Offer the tools for files: read, write, edit, glob, grep, ls, mkdir, vision.",
        folder="stricter",
    )
    enable_fetch: bool = setting(
        True, "AGENT_ENABLE_FETCH", "Offer the tools that fetch from the web.", folder="stricter"
    )
    enable_data_view: bool = setting(
        True, "AGENT_ENABLE_DATA_VIEW", "Offer the tool that looks into tables.", folder="stricter"
    )
    enable_python: bool = setting(True, "AGENT_ENABLE_PYEXE", "Offer the tool that runs Python.", folder="stricter")

    web_host: str = setting(
        "127.0.0.1",
        "AGENT_HOST",
        "The address that `lmagent web` listens on. One that others reach is taken with `--lan` only.",
        flag="--bind",
        folder="trusted",
    )
    web_port: int = setting(
        7860, "AGENT_PORT", "Its port; 0 takes a free one.", flag="--port", bounds=(0, 65535), folder="trusted"
    )
    web_pin: str = setting(
        "",
        "AGENT_PIN",
        "What a browser logs in with. Unset: six digits, anew at each start.",
        kind="secret",
        folder="trusted",
    )
    web_token: str = setting(
        "",
        "AGENT_TOKEN",
        "What programs send as bearer token. Unset: one that is made once, and kept.",
        kind="secret",
        folder="trusted",
    )
    web_cert: str = setting("", "AGENT_CERT", "Certificate chain for TLS, a PEM file.", flag="--cert", folder="trusted")
    web_key: str = setting(
        "",
        "AGENT_KEY",
        "The certificate's key, a PEM file; unset where both stand in one.",
        flag="--key",
        folder="trusted",
    )
    approval_timeout: float = setting(
        86_400.0,
        "LMAGENT_APPROVAL_TIMEOUT",
        "Seconds for which an approval waits for somebody's answer in the gateway; then it counts as denied.",
        bounds=(1, 31_536_000),
    )

    no_color: bool = setting(False, "NO_COLOR", "No colours in the terminal.", kind="presence")
    plain: bool = setting(
        False, "LMAGENT_PLAIN", "Plain terminal output: no live status, no decoration.", flag="--plain"
    )
    shipped_rules: bool = setting(
        True,
        "LMAGENT_SHIPPED_RULES",
        "Ask before files that may hold secrets are read, and refuse commands that wipe a disk or the workspace.",
        folder="trusted",
    )
    theme: Literal["auto", "light", "dark", "none"] = setting(
        "auto",
        "LMAGENT_THEME",
        "Colours of the terminal: for a light or a dark background, or none. `/theme` changes it.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "error",
        "AGENT_LOG_LEVEL",
        "What goes to .lmagent/logs/lmagent.log of the workspace: error (unexpected errors), warning (retries, "
        "notices), info (turns, tools, model calls), debug (each request by size and time); contents and keys never.",
        flag="--log-level",
    )
    debug: bool = setting(
        False,
        "LMAGENT_DEBUG",
        "Log at level debug, and print it to standard error too.",
        flag="--debug",
        folder="elsewhere",
    )
    own_shell: bool = setting(
        False,
        "OWN_SHELL",
        "Run `!COMMAND` of the terminal in your own shell, outside of the sandbox, and do not ask about `!!COMMAND`.",
        folder="elsewhere",
    )
    notify_command: str = setting(
        "",
        "NOTIFY_COMMAND",
        "A command of yours that is run when an approval or a plan waits for you, or a turn has ended. It runs as "
        "you, outside of the sandbox, with LMAGENT_EVENT (approval, plan, finished), LMAGENT_OUTCOME, "
        "LMAGENT_SESSION, LMAGENT_TITLE, LMAGENT_TEXT and LMAGENT_WORKSPACE.",
        folder="elsewhere",
    )
    notify_bell: bool = setting(True, "NOTIFY_BELL", "Ring the terminal's bell on the same occasions.")
    notify_after: float = setting(
        10.0,
        "NOTIFY_AFTER",
        "Seconds since your last input before which you are taken to be there still, and not called.",
        bounds=(0, None),
    )

    @property
    def endpoint(self) -> str:
        """The model server's URL, base or full; OpenRouter's where only its key was given."""
        return self.given_endpoint or DEFAULT_URL

    @property
    def given_endpoint(self) -> str:
        """The model server's URL if anything names one; empty means that a running server may be looked for."""
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
        values = (self.llm_api_key, self.openrouter_api_key, self.web_token)
        return tuple(value for value in values if value not in PLACEHOLDER_KEYS)

    @property
    def limits(self) -> Limits:
        """When a turn has to stop."""
        return Limits(
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
        """How the context is kept.

        Args:
            served: tokens that the server says it serves, if it said; a `context_window` that was set wins.
        """
        tokens = self.context_window or served or Window().tokens
        return Window(
            tokens=tokens,
            threshold=self.summarization_threshold,
            keep_recent=self.keep_recent_tokens,
            result_cap=self.tool_result_tokens,
        )

    def __repr__(self) -> str:
        """The settings without their secrets, so that a traceback or a debug line never shows a key."""
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in self._shown())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """The same for rich."""
        return self._shown()

    def _shown(self) -> list[tuple[str, Any]]:
        values = [(name, getattr(self, name)) for name in self.__struct_fields__]
        hidden = {name for name, value in values if BY_NAME[name].secret and value not in PLACEHOLDER_KEYS}
        return [(name, "***" if name in hidden else value) for name, value in values]


SETTINGS = declared(Settings)
"""All settings, in the order of the documentation."""

BY_NAME = {each.name: each for each in SETTINGS}

DEFAULTS: dict[str, Any] = {each.name: each.default for each in SETTINGS}
