"""Spec: the types that the parts of `mcp` exchange, and the interface between them.

`protocol` speaks with the servers, in a thread with an event loop of its own; the modules next to this one know only
these types. Nothing here imports the SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct, field

_SECRET = ("key", "token", "secret", "passw", "auth", "cookie", "credential")

INSTALLERS = ("npx", "uvx", "npm", "uv", "pipx", "pnpm", "bunx")
"""Programs that download a server before they become it: without `packages` they have no registry."""

INSTALLING = 180.0
"""Seconds that their start may take: the first one downloads the server."""


def is_secret(name: str) -> bool:
    """Return whether a header or a variable is named like a key."""
    return any(word in name.lower() for word in _SECRET)


class Needs(Struct, frozen=True):
    """What a server's process may do beyond an ordinary command in the sandbox.

    Attributes:
        network: `host:port` patterns that it may reach; `packages` means the registries that npm, pip and uv are
            configured with.
        paths: folders outside the workspace that it may read; with `:rw` at the end, also write.
        unconfined: it runs without a sandbox.
    """

    network: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    unconfined: bool = False


class OAuthClient(Struct, frozen=True, omit_defaults=True):
    """How we log in to a server at an address; without it, we register at its authorization server.

    Attributes:
        client_id: of a client that was registered beforehand; an https address is a client's metadata document.
        client_secret: its secret, best as `${env:NAME}`.
        key_file: the file of its private key (PEM), which signs instead of a secret (RFC 7523).
        scopes: requested in addition to those that the server asks for.
        grant: `client_credentials` logs in as the client itself, without a user.
        issuer: the only authorization server that may receive the secret.
        port: the port of the redirect address `http://127.0.0.1:PORT/callback`, if that was registered; 0 takes any.
    """

    client_id: str = ""
    client_secret: str = ""
    key_file: str = ""
    scopes: tuple[str, ...] = ()
    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    issuer: str = ""
    port: int = 0


class ServerSpec(Struct, frozen=True):
    """A configured server: a program that we start (`command`), or an address (`url`).

    Attributes:
        file: the file that configures it; None for a server that a client handed over.
        scope: whose file that is. A workspace's servers run only if the user trusts the folder.
        start_timeout: seconds until its list of tools must be known.
        call_timeout: seconds that a call may take without a sign of progress.
    """

    name: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str = "."
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    oauth: OAuthClient = OAuthClient()
    needs: Needs = Needs()
    file: Path | None = None
    scope: Literal["user", "workspace", "client"] = "user"
    enabled: bool = True
    start_timeout: float = 30.0
    call_timeout: float = 300.0

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the values of headers, variables and parameters with the name of a key, and the address's password.

        No log and no prompt may hold them.
        """
        from urllib.parse import parse_qsl, unquote, urlsplit

        address = urlsplit(self.url)
        named = (*self.env.items(), *self.headers.items(), *parse_qsl(address.query))
        values = [value for name, value in named if is_secret(name)]
        words = (value.split()[-1] for value in values if " " in value.strip())
        return (*values, *words, unquote(address.password or ""), self.oauth.client_secret)


class McpTool(Struct, frozen=True):
    """A tool as its server describes it; `fault` says why it cannot be used, and its schema is then left out."""

    name: str
    description: str = ""
    schema: dict[str, Any] = field(default_factory=dict[str, Any])
    title: str = ""
    fault: str = ""


class McpResource(Struct, frozen=True):
    """A resource; `uri` is a template (RFC 6570) if `template` is set."""

    uri: str
    name: str = ""
    description: str = ""
    mime: str = ""
    template: bool = False


class McpPrompt(Struct, frozen=True):
    """A prompt; `arguments` are pairs of a name and whether it is required."""

    name: str
    description: str = ""
    arguments: tuple[tuple[str, bool], ...] = ()


class McpManifest(Struct, frozen=True):
    """What a server offers. It is kept, so that a session knows the tools before the server runs."""

    server: str = ""  # its own name and version
    instructions: str = ""
    tools: tuple[McpTool, ...] = ()
    resources: tuple[McpResource, ...] = ()
    prompts: tuple[McpPrompt, ...] = ()


class Part(Struct, frozen=True):
    """A piece of a result; `data` holds the bytes of an image, a sound or a file."""

    kind: Literal["text", "image", "audio", "resource", "link"]
    text: str = ""
    data: bytes = b""
    mime: str = ""
    uri: str = ""


class McpResult(Struct, frozen=True):
    parts: tuple[Part, ...] = ()
    structured: Any = None
    is_error: bool = False


class SamplingRequest(Struct, frozen=True):
    """A server's request for a reply of the user's model."""

    system: str
    messages: tuple[tuple[Literal["user", "assistant"], str], ...]
    max_tokens: int = 1024
    stop: tuple[str, ...] = ()
    temperature: float | None = None


class Elicitation(Struct, frozen=True):
    """A server's question to the user: a form (`schema`), or a page to open (`url`)."""

    message: str
    schema: dict[str, Any] = field(default_factory=dict[str, Any])
    url: str = ""


class ElicitationAnswer(Struct, frozen=True):
    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] = field(default_factory=dict[str, Any])


class CallHandler(Protocol):
    """Receives what a server sends during a call. The methods run on the caller's event loop."""

    def progress(self, text: str) -> None:
        """Show a piece of progress to watchers."""
        ...

    async def sample(self, request: SamplingRequest) -> str | None:
        """Return the model's reply; None if the user refuses."""
        ...

    async def elicit(self, request: Elicitation) -> ElicitationAnswer:
        """Return the user's answer."""
        ...


Status = Literal["idle", "starting", "ready", "failed", "stopped", "login", "untrusted", "disabled"]


class McpState(Struct, frozen=True):
    """The state of a server, for users.

    Attributes:
        reason: why it is not ready, in a sentence.
        fix: what to type next.
        restarts: how often it was started again after it had died.
        confinement: what it may do, in words: `sandbox`, `sandbox, network: …`, `unconfined`, `remote`.
    """

    spec: ServerSpec
    status: Status
    reason: str = ""
    fix: str = ""
    restarts: int = 0
    confinement: str = ""


class Servers(Protocol):
    """The configured servers of a workspace. All methods may be called from any event loop.

    Attributes:
        changed: called (on any thread) with the name of a server whose state or manifest has changed.
        secrets: keys and tokens of the servers, which no text of theirs may hold; renewed logins are added.
    """

    changed: Callable[[str], None]
    secrets: list[str]

    def states(self) -> tuple[McpState, ...]:
        """Return all servers, in the order of their names, those that cannot run too."""
        ...

    def manifest(self, name: str) -> McpManifest | None:
        """Return what a server offers: as it says now, or as it said the last time; None if it was never asked."""
        ...

    def start(self) -> None:
        """Start all servers that may run, in the background. Returns at once; a second call does nothing."""
        ...

    async def ready(self, name: str) -> McpManifest:
        """Start a server if necessary, wait until it is ready, and return what it offers.

        Raises ToolError: it cannot run, did not start in time, or needs a login; the text says what to type.
        """
        ...

    async def call(self, name: str, tool: str, arguments: Mapping[str, Any], handler: CallHandler) -> McpResult:
        """Call a tool. Cancelling it cancels the call at the server.

        Raises ToolError: the server died, answered with an error, or took too long. The call is never repeated.
        """
        ...

    async def read(self, name: str, uri: str) -> tuple[Part, ...]:
        """Read a resource. Raises ToolError."""
        ...

    async def prompt(self, name: str, prompt: str, arguments: Mapping[str, str]) -> tuple[tuple[str, Part], ...]:
        """Return the messages of a prompt, as pairs of the role and the content. Raises ToolError."""
        ...

    def log(self, name: str, lines: int = 200) -> tuple[str, ...]:
        """Return the last lines of what a server wrote to its log, newest last."""
        ...

    async def restart(self, name: str) -> None:
        """Stop a server and start it anew, for example after a login."""
        ...

    async def aclose(self) -> None:
        """Stop all servers."""
        ...
