"""Settings: every value the program can be told, with its default. What each means stands in `fields.FIELDS`.

Defaults are those of the older systems whose variables are read; where those disagreed, the newer one's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

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

SECRETS = ("llm_api_key", "openrouter_api_key", "web_pin", "web_token")


class Settings(Struct, frozen=True):
    """What the program was told. `fields.FIELDS` documents each attribute.

    `workspace` and `agent_data_dir` are absolute once the loader has filled them in; a bare `Settings()` has neither.
    """

    workspace: Path = Path()
    agent_data_dir: Path = Path()

    llm_url: str = ""
    llm_base_url: str = ""
    llm_api_key: str = "lm-studio"
    openrouter_api_key: str = ""
    llm_model: str = ""
    llm_temperature: float | None = 0.65
    llm_max_tokens: int | None = None
    llm_timeout: float = 560.0
    llm_max_retries: int = 3
    llm_retry_delay: float = 3.0
    thinking_model: bool | None = None
    prewarm: bool = True
    vision_enabled: Literal["auto", "true", "false"] = "auto"

    context_window: int | None = None
    summarization_threshold: int = 80000
    keep_recent_tokens: int = 16000
    tool_result_tokens: int | None = None

    permission_mode: PermissionMode = "normal"
    permission_allow: tuple[str, ...] = ()
    permission_ask: tuple[str, ...] = ()
    permission_deny: tuple[str, ...] = ()

    max_iterations: int = 500
    max_turn_tokens: int | None = None
    max_turn_seconds: float | None = None
    max_session_tokens: int | None = None
    loop_repeats: int = 3
    max_no_progress_iters: int = 15
    max_errors: int = 5
    max_empty_iterations: int = 5
    max_nudges: int = 2

    enable_sub_agents: bool = True
    agent_max_depth: int = 3
    max_sub_agent_iterations: int = 25
    brief_data_budget: int = 8000

    enable_todo_tracking: bool = True
    enable_plan_enforcement: bool = True
    approve_plans: bool = False
    deep_planning: bool = True
    deep_steps: int = 200
    deep_tokens: int = 1_500_000

    sandbox: Literal["off", "landlock", "auto", "docker", "bubblewrap"] = "auto"
    sandbox_memory_mb: int = 0
    sandbox_pids: int = 0
    sandbox_read: str = ""
    sandbox_image: str = "lmagent-sandbox"
    sandbox_hosts: tuple[str, ...] = ()
    docker_network: str = "none"

    undo_mb: int = 2048

    scheduler_poll_interval: float = 0.5
    scheduler_lanes: int = 8
    scheduler_in_chat: bool = True

    check: Literal["off", "ask", "auto"] = "off"
    check_timeout: int = 600
    require_proof: bool = False
    check_commands: tuple[str, ...] = ()

    llm_parallel: int | None = None
    system: str = ""
    llm_top_p: float | None = None
    llm_frequency_penalty: float | None = None
    llm_presence_penalty: float | None = None
    llm_seed: int | None = None
    bounded_steps: int = 15
    tools_allow: tuple[str, ...] = ()
    enable_shell: bool = True
    enable_files: bool = True
    enable_fetch: bool = True
    enable_data_view: bool = True
    enable_python: bool = True

    web_host: str = "127.0.0.1"
    web_port: int = 7860
    web_pin: str = ""
    web_token: str = ""
    web_cert: str = ""
    web_key: str = ""
    approval_timeout: float = 86_400.0

    no_color: bool = False
    plain: bool = False
    shipped_rules: bool = True
    theme: str = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "error"
    debug: bool = False
    own_shell: bool = False
    notify_command: str = ""
    notify_bell: bool = True
    notify_after: float = 10.0

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
        hidden = {name for name, value in values if name in SECRETS and value not in PLACEHOLDER_KEYS}
        return [(name, "***" if name in hidden else value) for name, value in values]


DEFAULTS: dict[str, Any] = dict(zip(Settings.__struct_fields__, Settings.__struct_defaults__, strict=True))
"""Default by name; the struct is the one place where they are written."""
