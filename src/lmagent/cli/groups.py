"""Groups of commands: whole summaries in their help, and a command for the group's name alone."""

from __future__ import annotations

from typing import Any

import click

WHOLE = 1000
"""Characters that a summary may have: more than any has, so that none is cut."""


class CommandGroup(click.Group):
    """A group of commands; `default` is called when none is named, or empty for the help."""

    def __init__(self, *args: Any, default: str = "", **options: Any) -> None:
        options.setdefault("invoke_without_command", bool(default))
        super().__init__(*args, **options)
        self._default = default

    def invoke(self, ctx: click.Context) -> Any:
        result = super().invoke(ctx)
        command = self.get_command(ctx, self._default) if ctx.invoked_subcommand is None else None
        if command is None:
            return result
        with command.make_context(self._default, [], parent=ctx) as inner:
            return command.invoke(inner)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, item.get_short_help_str(WHOLE)) for name, item in found if item is not None and not item.hidden]
        with formatter.section("Commands"):
            formatter.write_dl([(f"{name} (default)" if name == self._default else name, text) for name, text in rows])
