"""`lmagent models …`: the models on this machine and its servers."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from lmagent.cli import models_advice, models_fetch, models_running
from lmagent.cli.groups import CommandGroup
from lmagent.cli.models_text import amount, json_row, rows
from lmagent.cli.options import workspace_option
from lmagent.cli.server import echo_json
from lmagent.core.errors import LmagentError
from lmagent.tools.sanitize import one_line, visible

if TYPE_CHECKING:
    from lmagent.modelserver.library import Details, Library

ALIASES = {
    **dict.fromkeys(("ls", "all"), "list"),
    **dict.fromkeys(("download", "get", "fetch", "install"), "pull"),
    **dict.fromkeys(("remove", "delete", "uninstall"), "rm"),
    **dict.fromkeys(("info", "inspect"), "show"),
    **dict.fromkeys(("add",), "import"),
}
"""Other programs' words for the commands."""


class ModelsGroup(CommandGroup):
    """A group that also knows other programs' words for its commands."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or super().get_command(ctx, ALIASES.get(cmd_name, cmd_name))

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command; an error may quote a hub, a file or its name, so control characters are removed."""
        try:
            return super().invoke(ctx)
        except LmagentError as error:
            error.message, error.fix = visible(error.message), visible(error.fix)
            raise


@click.group(cls=ModelsGroup, default="list")
@workspace_option
@click.pass_context
def models(ctx: click.Context, workspace: Path | None) -> None:
    """Fetch, list, show and remove models, and see what this machine can run."""
    ctx.obj = workspace


def open_library(workspace: Path | None) -> Library:
    from lmagent.app.wiring import HostOptions, load_settings
    from lmagent.modelserver.library import Library

    return Library(load_settings(HostOptions(workspace)).settings.agent_data_dir / "models", os.environ)


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> int:
    """List the models: the library's, LM Studio's, Ollama's and those of other servers."""
    from lmagent.modelserver.machine import machine_memory

    library, memory = open_library(ctx.obj), machine_memory()
    there = library.all()
    if as_json:
        for details in there:
            echo_json(json_row(details, memory))
        return 0
    if not there:
        click.echo(f"no models yet, in {library.folder} or of LM Studio or Ollama")
        click.echo("  → lmagent models recommend says which fit this machine; lmagent models pull NAME fetches one")
    for line in rows(there, memory):
        click.echo(line)
    for companion in library.companions():
        click.echo(f"- {one_line(companion.path.name)} is no model by itself but a file of the kind: {companion.kind}")
    return 0


@models.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> int:
    """Show the facts about a model: architecture, window, memory, template, settings."""
    from lmagent.modelserver.machine import machine_memory

    details, memory = open_library(ctx.obj).details(name), machine_memory()
    if as_json:
        echo_json(_all_of(details, json_row(details, memory)))
        return 0
    for label, value in _described(details):
        click.echo(f"{label:<14} {value}")
    if details.entry.broken:
        click.echo(f"✗ {visible(details.entry.broken)}")
        if details.fix:
            click.echo(f"  → {visible(details.fix)}")
    for note in details.notes:
        click.echo(f"! {note}")
    return 0


def _all_of(details: Details, row: dict[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.to_builtins(details.facts, enc_hook=str) if details.facts is not None else {}
    settings = {name: getattr(details.entry.settings, name) for name in details.entry.settings.__struct_fields__}
    sheet = str(details.sheet.path) if details.sheet.path != Path() else ""
    return {**row, "facts": facts, "settings": settings, "settings_file": sheet, "notes": details.notes}


def _described(details: Details) -> list[tuple[str, str]]:
    entry, facts = details.entry, details.facts
    lines = [("name", entry.name), ("engine", entry.engine), ("from", entry.source)]
    if entry.engine == "upstream":
        lines += [("server", one_line(entry.url)), ("its name there", one_line(entry.upstream))]
    else:
        lines.append(("file", one_line(str(entry.path), 1000)))
    if facts is not None:
        heads = sorted(set(facts.kv_heads))
        kv = "/".join(map(str, heads))
        template = [word for word, has in (("tools", facts.tools), ("thoughts", facts.thinks)) if has]
        lines += [
            ("kind", facts.kind + (f" (pooling: {facts.pooling})" if facts.pooling else "")),
            ("model", one_line(facts.name) or "-"),
            ("architecture", one_line(facts.architecture) + (f", {facts.experts} experts" if facts.experts else "")),
            (
                "parameters",
                f"{facts.parameters / 1e9:.2f}B" if facts.parameters >= 1e9 else f"{facts.parameters / 1e6:.1f}M",
            ),
            ("quantisation", facts.quantisation or "-"),
            ("made for", f"{facts.context:,} tokens" if facts.context else "-"),
            ("shape", f"{facts.layers} layers, width {facts.embedding}, {facts.heads} heads ({kv} of keys)"),
            ("vocabulary", f"{facts.vocabulary:,} ({one_line(facts.tokenizer)})"),
            ("template", ("knows " + " and ".join(template) if template else "plain") if facts.template else "none"),
        ]
        if len(facts.parts) > 1:
            lines.append(("parts", str(len(facts.parts))))
    if entry.size:
        lines.append(("on disk", amount(entry.size)))
    if entry.needed:
        lines.append(("memory", f"at most {amount(entry.needed)} at a window of {entry.settings.context:,} tokens"))
    sheet = details.sheet.path
    lines.append(
        (
            "settings",
            f"{one_line(str(sheet), 1000)} ({', '.join(sorted(details.sheet.given)) or 'empty'})"
            if sheet != Path()
            else "-",
        )
    )
    return lines


@models.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each model.")
@click.pass_context
def rm(ctx: click.Context, names: tuple[str, ...], yes: bool, as_json: bool) -> int:
    """Remove models from the library, with their settings. Models of LM Studio and Ollama are never touched."""
    from lmagent.modelserver.taking import removable, remove

    library = open_library(ctx.obj)
    ask = not yes and sys.stdin.isatty()
    meant = {details.entry.name: details for details in [_meant(library, name, guess=ask) for name in names]}
    doomed = [(details, removable(details, library.folder, library.all())) for details in meant.values()]
    for details, paths in doomed:
        if ask:
            click.echo(f"{details.entry.name}, {amount(details.entry.size)}:", err=True)
            for path in paths:
                click.echo(f"  {visible(str(path))}", err=True)
            if not click.confirm("remove it?", err=True):
                click.echo(f"kept {details.entry.name}", err=True)
                continue
        freed = remove(paths, library.folder)
        if as_json:
            row = {"removed": details.entry.name, "freed": freed, "paths": [str(path) for path in paths]}
            echo_json(row)
        else:
            click.echo(f"removed {details.entry.name}, {amount(freed)} are free again")
    return 0


def _meant(library: Library, name: str, *, guess: bool) -> Details:
    """Return the model to remove. A part of its name is enough only if the user is asked before."""
    from lmagent.modelserver.names import is_name_of
    from lmagent.modelserver.spec import ModelServerError

    details = library.details(name)
    if guess or is_name_of(name, details.entry):
        return details
    text = f"{name!r} is only a part of the name {details.entry.name}; without asking, nothing is removed by a part"
    raise ModelServerError(
        text, status=400, code="model_ambiguous", fix=f"type: lmagent models rm {details.entry.name}"
    )


models_fetch.extend(models, open_library)
models_advice.extend(models, open_library)
models_running.extend(models)
