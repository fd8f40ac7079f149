"""`/set`: the options of a session, which override the settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import ValidationError
from msgspec.structs import replace

from lmagent.app.registry import SlashCommand
from lmagent.app.slash import SETTINGS, SlashContext, SlashResult
from lmagent.config.settings import BY_NAME
from lmagent.config.show import shown
from lmagent.core.commands import SetOptions
from lmagent.core.decoding import convert
from lmagent.core.errors import ConfigError
from lmagent.core.model import LONGEST_INSTRUCTIONS, SessionOptions

FIELDS = {name: BY_NAME[f"llm_{name}"] for name in SessionOptions.__struct_fields__ if name != "instructions"}
"""The settings that options override."""

NAMES = (*FIELDS, "instructions")
USAGE = "[NAME VALUE|NAME default|default]"


def commands() -> Iterator[SlashCommand]:
    yield SlashCommand("set", USAGE, "show or change sampling and instructions of this session", _set, SETTINGS)


async def _set(context: SlashContext, words: str) -> SlashResult:
    session, host = context.session, context.host
    options = session.state.work.options if session is not None else host.agent.options
    name, _, value = words.strip().partition(" ")
    if not name:
        return SlashResult(_listed(context, options))
    if name == "default" and not value:
        changed, text = SessionOptions(), "This session uses the settings again"
    else:
        name = name.removeprefix("llm_")
        if name not in NAMES or not value.strip():
            raise ConfigError(
                f"/set does not know {words.strip()[:80]!r}", fix=f"/set NAME VALUE with {', '.join(NAMES)}"
            )
        changed, text = _changed(options, name, value.strip()), f"{name} is set for this session"
    if session is None:
        host.agent = replace(host.agent, options=changed)
        return SlashResult(f"{text}, which begins with your first message.")
    await session.send(SetOptions(options=changed, by="slash"))
    return SlashResult(f"{text}, from the next model call on. The conversation is not re-read.")


def _changed(options: SessionOptions, name: str, value: str) -> SessionOptions:
    plain: Any = None if value == "default" else value
    if name == "instructions":
        plain = plain or ""
    fields = {**{field: getattr(options, field) for field in NAMES}, name: plain}
    try:
        return convert(fields, SessionOptions, strict=False)
    except ValidationError:
        if name == "instructions":
            raise ConfigError(
                f"instructions take at most {LONGEST_INSTRUCTIONS:,} characters, not {len(value):,}",
                fix="put longer ones into AGENTS.md of the folder",
            ) from None
        raise ConfigError(
            f"{name} must be {FIELDS[name].allowed.removesuffix(', or none')}, not {value[:40]!r}",
            fix=f"/set {name} default uses the setting again",
        ) from None


def _listed(context: SlashContext, options: SessionOptions) -> str:
    settings, lines = context.host.settings, list[str]()
    for name, field in FIELDS.items():
        own = getattr(options, name)
        value = shown(field, own if own is not None else getattr(settings, field.name))
        lines.append(f"{name:<18} {value:<8} {'this session' if own is not None else f'setting {field.name}'}")
    lines.append(f"{'instructions':<18} {options.instructions or '(none)'}")
    return "\n".join((*lines, f"/set {USAGE} changes them; “default” uses the setting again."))
