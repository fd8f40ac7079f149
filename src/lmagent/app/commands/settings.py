"""The slash commands about model and settings: /model, /mode, /permissions, /set, /config and /init."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from msgspec import ValidationError
from msgspec.structs import replace

from lmagent.app.registry import SlashCommand
from lmagent.app.servers.table import full_name, provider_named, usable
from lmagent.app.settings import changed_settings, save_theme
from lmagent.app.slash import SETTINGS, Choice, SlashContext, SlashResult
from lmagent.config.settings import BY_NAME
from lmagent.config.show import shown
from lmagent.core.commands import SetMode, SetModel, SetOptions
from lmagent.core.decoding import convert
from lmagent.core.errors import ConfigError
from lmagent.core.events import PermissionMode
from lmagent.core.lines import grant_in_a_line
from lmagent.core.model import LONGEST_INSTRUCTIONS, SessionOptions

MODES = {
    "auto": "nothing is asked",
    "normal": "writing and running are asked about",
    "manual": "reading is asked about too",
}
THEMES = {
    "auto": "light if the terminal says that its background is light, else dark",
    "light": "colours for a light background",
    "dark": "colours for a dark background",
    "none": "no colours",
}
INIT = """Look at this project and write AGENTS.md in its top folder: the page that a new helper reads first.

Say in at most 60 lines what the project is for, where its parts are, how to build, run and test it (commands that you
have seen in its files), and the conventions that its code and its history show. Invent nothing: leave out what you
cannot find. If AGENTS.md exists, read it first, keep correct statements and fix wrong ones. Do not change other files.
"""


def commands() -> Iterator[SlashCommand]:
    for name, usage, text, run in (
        ("model", "[NAME|PROVIDER:NAME]", "pick or change the model, also of another server", _model),
        ("mode", "[auto|normal|manual]", "pick or change the permission mode", _mode),
        ("permissions", "", "show the permission rules", _permissions),
        ("theme", "[auto|light|dark|none]", "pick or change the colours of the terminal", _theme),
        ("config", "", "show the settings that differ from their defaults", _config),
        ("set", SET, "show or change sampling and instructions of this session", _set),
        ("init", "", "let the agent write AGENTS.md for this project", _init),
    ):
        yield SlashCommand(name, usage, text, run, SETTINGS)


def _offered(command: str, given: str, current: str, known: Mapping[str, str]) -> SlashResult:
    """Return the values to choose from. Raise ConfigError if another one was given."""
    if given:
        raise ConfigError(f"there is no {command} {given!r}", fix=f"one of {', '.join(known)}")
    choices = (Choice(f"/{command} {name}", f"{name:<8}{text}", name == current) for name, text in known.items())
    return SlashResult(f"{command} {current}; one of {', '.join(known)}", choices=tuple(choices))


async def _mode(context: SlashContext, mode: str) -> SlashResult:
    if mode not in MODES:
        current = context.session.state.mode if context.session else context.host.settings.permission_mode
        return _offered("mode", mode, current, MODES)
    wanted = cast("PermissionMode", mode)
    context.host.settings = replace(context.host.settings, permission_mode=wanted)
    if context.session:
        await context.session.send(SetMode(mode=wanted, by="slash"))
    return SlashResult(f"mode {wanted}")


async def _model(context: SlashContext, name: str) -> SlashResult:
    host = context.host
    if not name or name.endswith(":"):
        return await _list_models(context, name)
    name = await full_name(host, "", name)
    host.use_model(name)
    await host.offer_vision()
    if context.session is None:
        return SlashResult(f"model {name}")
    cost = await _switch_cost(context, name)
    await context.session.send(SetModel(model=name, by="slash"))
    return SlashResult(f"model {name}; with your next message it {cost}")


async def _list_models(context: SlashContext, prefix: str) -> SlashResult:
    """Return the models of the usual server, or of the provider in `PROVIDER:`."""
    host = context.host
    listed = await host.models(provider_named(prefix[:-1]) if prefix else "")
    current = (context.session.state.model if context.session else host.agent.model) or "(the loaded model)"
    cost = f"Another one {await _switch_cost(context, '')}" if context.session and listed else ""
    others = "" if prefix else f"Other servers: /model PROVIDER:NAME with {', '.join(usable(host.settings))}"
    text = "\n".join([f"model {current}", *(f"- {item}" for item in listed), cost, others]).replace("\n\n", "\n")
    choices = tuple(Choice(f"/model {item}", item, item == current) for item in listed)
    return SlashResult(text.rstrip(), choices=choices)


async def _switch_cost(context: SlashContext, name: str) -> str:
    """Return a warning that another model has to read the whole conversation; empty before a model is chosen."""
    assert context.session is not None
    tokens = context.session.state.estimate_tokens()
    speed = context.host.traits().reading(name) or context.view.pace.read_per_s
    seconds = f", {tokens / speed:,.0f} s at {speed:,.0f} tokens/s" if speed else ""
    text = f"re-reads the conversation: about {tokens:,} tokens{seconds}"
    window = await context.host.served.window(name) if name else None
    if window and window < tokens:
        return f"{text}; its window is {window:,}, so the conversation is shortened first"
    return text


async def _theme(context: SlashContext, theme: str) -> SlashResult:
    if theme not in THEMES:
        return _offered("theme", theme, context.host.settings.theme, THEMES)
    file = save_theme(context.host.workspace, theme)
    return SlashResult(f"theme {theme}, kept in {file}", theme=theme)


async def _permissions(context: SlashContext, _: str) -> SlashResult:
    session, settings = context.session, context.host.settings
    mode = session.state.mode if session is not None else settings.permission_mode
    rules = {
        "deny": settings.permission_deny,
        "ask": settings.permission_ask,
        "allow": settings.permission_allow,
        "session": tuple(map(grant_in_a_line, session.state.grants)) if session is not None else (),
    }
    lines = [f"mode {mode}: {MODES[mode]}; /mode changes it"]
    lines += [f"{name:<8} {rule}" for name, found in rules.items() for rule in found]
    if settings.shipped_rules:
        lines.append("shipped  ask before files with secrets are read, deny what wipes a disk or the workspace")
    lines.append("Rules are the settings permission_deny, permission_ask and permission_allow; deny wins.")
    return SlashResult("\n".join(lines))


async def _config(context: SlashContext, _: str) -> SlashResult:
    return SlashResult(changed_settings(context.host.workspace))


async def _init(_: SlashContext, __: str) -> SlashResult:
    return SlashResult(submit=INIT)


# --- /set -------------------------------------------------------------------------------------------------------------

# The settings that options override.
FIELDS = {name: BY_NAME[f"llm_{name}"] for name in SessionOptions.__struct_fields__ if name != "instructions"}

NAMES = (*FIELDS, "instructions")
SET = "[NAME VALUE|NAME default|default]"


async def _set(context: SlashContext, words: str) -> SlashResult:
    session, host = context.session, context.host
    options = session.state.work.options if session is not None else host.agent.options
    name, _, value = words.strip().partition(" ")
    if not name:
        return SlashResult(_options(context, options))
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


def _options(context: SlashContext, options: SessionOptions) -> str:
    settings, lines = context.host.settings, list[str]()
    for name, field in FIELDS.items():
        own = getattr(options, name)
        value = shown(field, own if own is not None else getattr(settings, field.name))
        lines.append(f"{name:<18} {value:<8} {'this session' if own is not None else f'setting {field.name}'}")
    lines.append(f"{'instructions':<18} {options.instructions or '(none)'}")
    return "\n".join((*lines, f"/set {SET} changes them; “default” uses the setting again."))
