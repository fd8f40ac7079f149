"""Spec: the content of agent.yaml. Its JSON Schema, `docs/agent.schema.json`, is made from these types.

The keys up to `personality` are those of LM Studio's agent guide; the others are ours.
"""

# Without `from __future__ import annotations`: msgspec reads the types, and texts would make it slow.

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

AgentType = Literal["conversational", "task-oriented", "knowledge", "creative"]
MemoryType = Literal["context_window", "long_term", "none"]
LogLevel = Literal["trace", "debug", "info", "warn", "warning", "error"]

NAME = r"^[A-Za-z0-9][A-Za-z0-9._ -]{0,63}$"
TOOL_NAME = r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$"
PART = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
HOST = r"^(\*\.)?[A-Za-z0-9.-]+(:\d+)?$"
ADDRESS = r"^https?://"

MEANINGS = {
    NAME: "letters, digits, spaces and . _ -, at most 64",
    TOOL_NAME: "letters, digits, _ and -, the first no digit, at most 64",
    PART: "letters, digits, _ and -, at most 64",
    VARIABLE: "letters, digits and _, the first no digit, at most 64",
    HOST: "a host such as docs.python.org, *.python.org or example.com:8443",
    ADDRESS: "an address that begins with http:// or https://",
}
"""What these forms mean, for errors about a text that has another one."""

Count = Annotated[int, Meta(ge=1)]
Text = Annotated[str, Meta(min_length=1, max_length=100_000)]
Line = Annotated[str, Meta(max_length=1000)]


class ModelSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """The model. `provider` is a name of `/provider`, or "local" for the server that is set."""

    provider: str = "local"
    model_id: str = ""
    context_window: Count | None = None


class Parameters(Struct, frozen=True, forbid_unknown_fields=True):
    """How the model samples, by the names of OpenAI's API."""

    temperature: Annotated[float, Meta(ge=0, le=5)] | None = None
    max_tokens: Count | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    seed: Annotated[int, Meta(ge=0)] | None = None


class MemorySpec(Struct, frozen=True, forbid_unknown_fields=True):
    """What the agent remembers: `context_window` this conversation, `long_term` also facts of earlier ones, `none`
    only the last message. `retention_size`: turns that are kept word for word when the conversation is shortened."""

    type: MemoryType = "context_window"
    retention_size: Count | None = None


class ToolEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool. Without a `path` it is a built-in one of that name. `parameters`: a JSON schema, or name → type."""

    name: Annotated[str, Meta(pattern=TOOL_NAME)]
    path: str = ""
    enabled: bool = True
    description: Annotated[str, Meta(max_length=1000)] = ""
    parameters: dict[str, Any] | None = None
    timeout: Annotated[float, Meta(gt=0, le=3600)] = 60.0


class Logging(Struct, frozen=True, forbid_unknown_fields=True):
    level: LogLevel = "error"


class Api(Struct, frozen=True, forbid_unknown_fields=True):
    """The model server. `key_env` names the variable with its key: a key is never in the file."""

    url: Annotated[str, Meta(pattern=ADDRESS)] = ""
    key_env: Annotated[str, Meta(pattern=VARIABLE)] = ""


class Gpu(Struct, frozen=True, forbid_unknown_fields=True):
    """How the model is loaded: taken by lmagent's model server if it has not loaded it yet, else shown."""

    n_gpu_layers: Annotated[int, Meta(ge=-1)] | None = None
    flash_attn: bool | None = None


class Permissions(Struct, frozen=True, forbid_unknown_fields=True):
    """The permission mode, and rules as in the settings: `shell(git status)`, `write(docs/**)`."""

    mode: Literal["auto", "normal", "manual"] | None = None
    allow: tuple[Line, ...] = ()
    ask: tuple[Line, ...] = ()
    deny: tuple[Line, ...] = ()


class LimitsSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """When a turn ends: after so many model calls, tokens, or seconds."""

    steps: Count | None = None
    turn_tokens: Count | None = None
    turn_seconds: Annotated[float, Meta(gt=0)] | None = None


class Network(Struct, frozen=True, forbid_unknown_fields=True):
    """Hosts that the agent and its tools may reach; all others stay closed."""

    hosts: tuple[Annotated[str, Meta(pattern=HOST)], ...] = ()


class Variable(Struct, frozen=True, forbid_unknown_fields=True):
    """A variable of the environment for the tools. A `secret` has no default and is never stored."""

    description: Line = ""
    required: bool = False
    secret: bool = False
    default: str = ""


class Prompts(Struct, frozen=True, forbid_unknown_fields=True):
    """Which files of `prompts/` are used, by their names without `.yaml`."""

    system: Annotated[str, Meta(min_length=1)] = "system"
    user: Annotated[str, Meta(min_length=1)] = "user_template"


class McpServer(Struct, frozen=True, forbid_unknown_fields=True):
    """An MCP server: a program that runs in the sandbox, or the address of one. `${NAME}` is a variable of `env`.

    `network` are hosts that the program may reach; `packages` means the registries of npm, pip and uv.
    """

    type: Literal["stdio", "http", "streamable-http"] | None = None
    command: Line = ""
    args: tuple[Line, ...] = ()
    env: dict[Annotated[str, Meta(pattern=VARIABLE)], str] = {}
    url: Annotated[str, Meta(pattern=ADDRESS)] = ""
    headers: dict[str, str] = {}
    network: tuple[Line, ...] = ()
    start_timeout: Annotated[float, Meta(gt=0, le=3600)] | None = None
    call_timeout: Annotated[float, Meta(gt=0, le=86_400)] | None = None


class AgentYaml(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of an agent.yaml."""

    name: Annotated[str, Meta(pattern=NAME)]
    version: str | float | int = "1.0"
    description: Line = ""
    type: AgentType = "conversational"
    model: ModelSpec | str = ModelSpec()
    parameters: Parameters = Parameters()
    memory: MemorySpec = MemorySpec()
    tools: tuple[ToolEntry | str, ...] | None = None
    logging: Logging = Logging()
    api: Api = Api()
    gpu: Gpu = Gpu()
    system_prompt: Annotated[str, Meta(max_length=100_000)] = ""
    personality: dict[str, str | tuple[str, ...]] = {}
    prompts: Prompts = Prompts()
    variables: dict[Annotated[str, Meta(pattern=VARIABLE)], str] = {}
    permissions: Permissions = Permissions()
    limits: LimitsSpec = LimitsSpec()
    network: Network = Network()
    env: dict[Annotated[str, Meta(pattern=VARIABLE)], Variable] = {}
    agents: tuple[Annotated[str, Meta(pattern=PART)], ...] = ()
    skills: tuple[Annotated[str, Meta(pattern=PART)], ...] = ()
    mcp_servers: dict[Annotated[str, Meta(pattern=PART)], McpServer] = {}


class PromptYaml(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a file in `prompts/`."""

    content: Text
    name: Line = ""
    description: Line = ""
    version: str | float | int = "1"
    variables: dict[Annotated[str, Meta(pattern=VARIABLE)], str] = {}
