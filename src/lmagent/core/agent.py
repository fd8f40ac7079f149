"""AgentConfig: data that configures the one loop. Another kind of agent is another value, never another loop."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.events import PermissionMode
from lmagent.core.model import Sampling, SessionOptions
from lmagent.core.tool import Tool


class TurnLimits(Struct, frozen=True):
    """When a turn has to stop.

    Attributes:
        steps: model calls in a turn (`MAX_ITERATIONS`).
        bounded: model calls in a turn of bounded work.
        turn_tokens: prompt + reply tokens in a turn; None is unlimited.
        turn_seconds: wall time of a turn; None is unlimited.
        session_tokens: prompt + reply tokens in the session; None is unlimited.
        nudges: how often narration without a call is answered before the turn ends as incomplete.
        repeats: identical (tool, arguments, result) before a hint; at twice that the call is withheld, at three
            times the turn stops.
        errors: replies in a row in which every call failed, before the turn stops (`MAX_ERRORS`).
        empties: empty replies in a row before the turn stops (`MAX_EMPTY_ITERATIONS`).
        endless: endless replies in a row before the turn stops.
        no_progress: steps without a new result before the turn stops (`MAX_NO_PROGRESS_ITERS`).
    """

    steps: int = 500
    bounded: int = 15
    turn_tokens: int | None = None
    turn_seconds: float | None = None
    session_tokens: int | None = None
    nudges: int = 2
    repeats: int = 3
    errors: int = 5
    empties: int = 5
    endless: int = 2
    no_progress: int = 15


class Window(Struct, frozen=True):
    """How the context is managed.

    Attributes:
        tokens: the window that the server really serves.
        reserve: tokens kept free for the reply, an eighth of the window at most.
        threshold: compaction is never later than this many prompt tokens (`SUMMARIZATION_THRESHOLD`).
        share: compaction at this share of (tokens - reserve).
        keep_recent: tokens of recent messages that a compaction keeps, in whole call/result groups.
        keep_user: tokens of user text that a compaction keeps.
        result_cap: tokens of one tool result; None lets it follow the window.
        keep_turns: turns that a compaction keeps word for word, if they fit; None leaves it to `keep_recent`; 0 begins
            the prompt of each turn anew, with the user's last message.
    """

    tokens: int = 32768
    reserve: int = 4096
    threshold: int = 80000
    share: float = 0.92
    keep_recent: int = 16000
    keep_user: int = 20000
    result_cap: int | None = None
    keep_turns: int | None = None

    @property
    def trigger(self) -> int:
        """Prompt tokens at which the conversation is compacted."""
        reserve = min(self.reserve, self.tokens // 8)
        return min(self.threshold, int((self.tokens - reserve) * self.share))

    @property
    def result_tokens(self) -> int:
        """Tokens of one tool result: an eighth of the window, unless `result_cap` is set."""
        return self.result_cap or self.tokens // 8


class AgentConfig(Struct, frozen=True):
    """The agent of a session, as its values.

    Attributes:
        name: shown in lists.
        system: the system text; empty for the default of the window's size.
        model: the model's name; empty lets the server choose.
        temperature: sampling temperature; None leaves it to the server.
        sampling: the other sampling parameters.
        max_tokens: cap on one reply; None leaves it to the server.
        keep_thinking: send thoughts back to the model; None decides by the model's name.
        limits: when a turn has to stop.
        window: how the context is managed.
        options: the initial options of new sessions, which override the values above.
        template: the text around each of the user's messages, which takes the place of `USER_INPUT`; empty for none.
        converses: it talks with the user, so a question at the end of an answer waits for nothing.
    """

    name: str
    system: str = ""
    model: str = ""
    temperature: float | None = None
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    keep_thinking: bool | None = None
    limits: TurnLimits = TurnLimits()
    window: Window = Window()
    options: SessionOptions = SessionOptions()
    template: str = ""
    converses: bool = False

    def with_options(self, options: SessionOptions) -> AgentConfig:
        """Return the agent with a session's options applied."""
        if options == SessionOptions():
            return self
        names = Sampling.__struct_fields__
        given = {name: value for name in names if (value := getattr(options, name)) is not None}
        return replace(
            self,
            temperature=self.temperature if options.temperature is None else options.temperature,
            max_tokens=self.max_tokens if options.max_tokens is None else options.max_tokens,
            sampling=replace(self.sampling, **given),
        )


DEFAULT_AGENT = "lmagent"
"""The name of the agent that the settings describe."""

USER_INPUT = "{{user_input}}"
"""The user's message in a template."""


class NamedAgent(Struct, frozen=True):
    """An agent that a user wrote: what it does differently from the default one. None leaves a value to the settings.

    Attributes:
        name: what `--agent`, the facade and `delegate` call it.
        title: its name as its author wrote it, for display; empty for `name`.
        description: what it is for, in one line.
        source: the file or folder that it is from.
        system: the beginning of its system text, in its author's words.
        model: the model's name; empty leaves it to the settings.
        options: how the model samples.
        tools: names of the built-in tools that it may use; None for all.
        own: tools that only this agent has.
        mode: the permission mode of its new sessions.
        allow: permission rules, added to those of the settings; `ask` and `deny` as well.
        steps: see `TurnLimits`, as `turn_tokens` and `turn_seconds`.
        template: see `AgentConfig`.
        keep_turns: see `Window`.
        memory: it may use the long-term memory.
        converses: see `AgentConfig`.
        servers: it may use the MCP servers of its host, also if it has a choice of tools.
    """

    name: str
    title: str = ""
    description: str = ""
    source: str = ""
    system: str = ""
    model: str = ""
    options: SessionOptions = SessionOptions()
    tools: tuple[str, ...] | None = None
    own: tuple[Tool, ...] = ()
    mode: PermissionMode | None = None
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    steps: int | None = None
    turn_tokens: int | None = None
    turn_seconds: float | None = None
    template: str = ""
    keep_turns: int | None = None
    memory: bool = False
    converses: bool = False
    servers: bool = False
