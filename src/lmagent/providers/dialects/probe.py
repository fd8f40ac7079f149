"""Probe: recognises a model server and its models with a few harmless questions, one after another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import anyio
from msgspec.structs import replace

from lmagent.core.errors import ConfigError
from lmagent.core.model import ModelRequest
from lmagent.providers.dialects.ask import FAR, PATIENT, QUICK, Ask
from lmagent.providers.dialects.base import Dialect, Seen, ServerFacts
from lmagent.providers.transport import Timeouts, Transport
from lmagent.providers.urls import is_near, server_root

GENERIC = "generic"
DIALECTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "lmagent": ("Lmagent", "lmagent's model server", ("lmagent",)),
    "openrouter": ("OpenRouter", "OpenRouter", ()),
    "lmstudio": ("LMStudio", "LM Studio", ("organization_owner", "organization-owner")),
    "vllm": ("VLLM", "vLLM", ("vllm",)),
    "llamacpp": ("LlamaCpp", "llama.cpp", ("llamacpp",)),
    "ollama": ("Ollama", "Ollama", ("library",)),
    GENERIC: ("Generic", "", ("koboldcpp", "tabbyAPI", "sglang", "localai", "LocalAI")),
}
"""Class, label and telling `owned_by` of each dialect, by module, in the order of their claims. The last claims all."""

_ADDED: dict[str, tuple[Dialect, tuple[str, ...]]] = {}
"""Dialects of plugins with their telling `owned_by`; they claim after ours, so that they take no server from them."""

PORTS = (1234, 11434, 8080, 8000)
"""Default ports of LM Studio, Ollama, llama.cpp and vLLM."""

OLLAMA_PORT = 11434
BUDGET = 3.0
"""Seconds for all questions to a server nearby; a far one gets `FAR_BUDGET`."""
KNOWN_BUDGET = 12.0
"""The same for a server nearby that answers slowly, or identifies itself: its facts are worth the wait."""
FAR_BUDGET = 10.0
COUNTING = Timeouts(connect=1.0, first_byte=10.0, idle=5.0)
"""Patience with a server that counts tokens: it may be busy, and the text is long."""


async def probe(
    transport: Transport,
    base_url: str,
    model: str = "",
    key: str = "",
    *,
    deep: bool = True,
    timeouts: Timeouts | None = None,
    budget: float | None = None,
) -> ServerFacts:
    """Find out which server is at `base_url`.

    Ask for its list of models; then the routes of the dialects that may answer there (the one that the list hints at;
    of a server nearby, all); then the facts that the dialect itself needs. The requests use one connection, one after
    another, and load no model; all are GETs, except Ollama's `POST /api/show`. A missing answer raises nothing: a
    server that stays unknown is `generic`; a slow one whose list or port is Ollama's counts as Ollama, as its common
    route cuts.

    Args:
        model: the model to use; empty for the server's only one.
        deep: ask all dialects, even without a hint in the list of models or in the port.
        timeouts: how long the server may be silent; the default depends on its address.
        budget: seconds for all questions; the facts known by then are returned.

    Raises:
        ConfigError: `base_url` is no URL.
    """
    root = server_root(base_url)
    near = is_near(root)
    ask = Ask(transport, base_url, key, timeouts or (PATIENT if near else FAR))
    seen = Seen(root=root, local=near, listing=None, answers={})
    with anyio.move_on_after(budget or (BUDGET if near else FAR_BUDGET)) as limit:
        begun = anyio.current_time()
        seen = replace(seen, listing=await ask.models())
        if ask.reached:
            promptly = anyio.current_time() - begun < QUICK.first_byte / 2
            if timeouts is None and near and promptly and not _hinted(seen):
                ask.timeouts = QUICK
            elif budget is None and near:
                limit.deadline = begun + KNOWN_BUDGET
            facts = await _claimed(seen, ask, model, deep=deep)
            if facts is not None:
                return facts
    late = ask.slow or limit.cancelled_caught
    if not ask.reached and not late:
        return ServerFacts()  # no server listens
    ask.over = True
    name = "ollama" if late and _may_be_ollama(seen) else GENERIC
    facts = await dialect(name).read(seen, ask, model)  # from the list alone
    return replace(facts, finished=not late, reached=ask.reached)


def add(dialect: Dialect, owners: tuple[str, ...]) -> None:
    """Add the dialect of a plugin. Raise ConfigError if its name is taken."""
    taken = dialect.name in DIALECTS or (
        dialect.name in _ADDED and type(_ADDED[dialect.name][0]).__module__ != type(dialect).__module__
    )
    if taken:
        raise ConfigError(f"two dialects are named {dialect.name!r}", fix="rename the one that the plugin brings")
    _ADDED[dialect.name] = dialect, owners


def _owners() -> dict[str, tuple[str, ...]]:
    """Return the telling `owned_by` of all dialects, in the order of their claims."""
    known = {name: owners for name, (_, _, owners) in DIALECTS.items()}
    generic = {GENERIC: known.pop(GENERIC)}
    return known | {name: owners for name, (_, owners) in _ADDED.items()} | generic


def _hinted(seen: Seen) -> list[str]:
    return [name for name, owners in _owners().items() if seen.owner() in owners]


async def _claimed(seen: Seen, ask: Ask, model: str, *, deep: bool) -> ServerFacts | None:
    hinted, near = _hinted(seen), seen.local
    port = urlsplit(seen.root).port
    everyone = (near or not hinted) and (deep or not seen.listed or port in PORTS)
    for names in ([hinted] if hinted else []) + ([list(_owners())] if everyone else []):
        dialects = [dialect(name) for name in names]
        seen = await _look(seen, ask, dialects, asked=near or bool(hinted))
        claimant = next((one for one in dialects if one.claims(seen)), None)
        if claimant is not None and not (claimant.name == GENERIC and ask.slow and _may_be_ollama(seen)):
            facts = await claimant.read(seen, ask, model)
            return replace(facts, finished=not ask.slow) if claimant.name == GENERIC else facts
    return None


def _may_be_ollama(seen: Seen) -> bool:
    return seen.local and ("ollama" in _hinted(seen) or urlsplit(seen.root).port == OLLAMA_PORT)


def dialect(name: str) -> Dialect:
    """Return a dialect by its name; ours are loaded at the first use."""
    return _ADDED[name][0] if name in _ADDED else _own(name)


@cache
def _own(name: str) -> Dialect:
    kind, label, _ = DIALECTS[name]
    made: Dialect = getattr(import_module(f"lmagent.providers.dialects.{name}"), kind)(name, label)
    return made


def dialect_of(facts: ServerFacts) -> Dialect:
    return dialect(facts.dialect if facts.dialect in DIALECTS or facts.dialect in _ADDED else GENERIC)


async def count_tokens(
    transport: Transport,
    base_url: str,
    facts: ServerFacts,
    request: ModelRequest,
    key: str = "",
    *,
    timeouts: Timeouts = COUNTING,
) -> int | None:
    """Return the server's token count of a request's prompt; None if it does not count."""
    if not facts.tokenizer:
        return None
    if not request.model and facts.model is not None:
        request = replace(request, model=facts.model.id)
    return await dialect_of(facts).count(Ask(transport, base_url, key, timeouts), request)


async def _look(seen: Seen, ask: Ask, dialects: Sequence[Dialect], *, asked: bool) -> Seen:
    """Ask the dialects' routes one after another: on the connection that the chat will use."""
    routes = {route for dialect in dialects for route in dialect.routes if asked} - seen.answers.keys()
    answers: dict[str, Any] = dict(seen.answers)
    for route in sorted(routes):
        answers[route] = await ask.get(route)
    return replace(seen, answers=answers)
