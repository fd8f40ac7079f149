"""`lmagent prove-offline`: see every connection that is tried, and let none leave this machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from lmagent.cli import shared
from lmagent.core.errors import ConfigError
from lmagent.core.plurals import plural
from lmagent.sandbox.hosts import Target, parse_target

if TYPE_CHECKING:
    from lmagent.offline.parts import PartReport
    from lmagent.offline.watch import Attempt

_END = 5.0  # seconds for processes that the command left behind
_PROBED = "Chromium asked the kernel for a way to the internet, to see whether there is IPv6; it sends nothing there"


@click.command("prove-offline", context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--allow", "allowed", multiple=True, metavar="ADDRESS:PORT", help="Let COMMAND reach an address.")
@shared.json_option
def prove_offline(command: tuple[str, ...], allowed: tuple[str, ...], as_json: bool) -> int:
    """Show each address beyond this machine that is tried, and by which program; none is reached.

    Without COMMAND, lmagent's own parts run on the tiny model that comes along: the model server, a task, a
    conversation, and the page in a browser. Exit code 1 if anything was tried or a part did not work; else that of
    COMMAND.
    """
    if command:
        return _command(command, [_address(text) for text in allowed], as_json)
    if allowed:
        raise click.UsageError("--allow is for a COMMAND: lmagent prove-offline --allow 192.168.1.5:1234 -- lmagent")
    from lmagent.offline.parts import run_parts

    parts: list[PartReport] = []
    for part in run_parts():
        parts.append(part)
        if as_json:
            shared.print_json({"part": part.name, **_facts(part.attempts), "failure": part.failure or part.skipped})
        else:
            _show(part)
    tried = sum(sum(part.attempts.values()) for part in parts)
    worked = [part for part in parts if not part.failure and not part.skipped]
    if not as_json:
        click.echo(f"{_count(tried)}, by {plural(len(worked), 'part')} of lmagent at work")
    return 1 if tried or any(part.failure for part in parts) or not worked else 0


def _command(command: tuple[str, ...], allowed: list[Target], as_json: bool) -> int:
    from lmagent.offline.watch import ConnectionWatch

    watch = ConnectionWatch(allowed)
    # A proxy on this machine would connect in the command's place.
    process = watch.start(command, env={name: text for name, text in os.environ.items() if not _is_proxy(name)})
    while True:
        try:
            code = process.wait()
            break
        except KeyboardInterrupt:  # the terminal has told the command too; it decides
            continue
    watch.join(_END)
    if as_json:
        shared.print_json(_facts(watch.attempts))
    else:
        _list(watch.attempts)
        if watch.probed:
            click.echo(f"  {_PROBED}", err=True)
        click.echo(_count(sum(watch.attempts.values())), err=True)
    return 1 if watch.attempts else code if code >= 0 else 128 - code


def _address(text: str) -> Target:
    try:
        target = parse_target(text)
    except ValueError as error:
        raise ConfigError(f"--allow {text[:80]!r} is no address: {error}", fix="--allow 192.168.1.5:1234") from None
    if target.address is None:
        raise ConfigError(
            f"--allow {text[:80]!r} names a host, and a look-up of its name would leave this machine",
            fix="give its address: --allow 192.168.1.5:1234",
        )
    return target


def _is_proxy(name: str) -> bool:
    return name.lower().endswith("_proxy")


def _count(tried: int) -> str:
    return f"{plural(tried, 'connection')} beyond this machine tried" if tried else "no connection beyond this machine"


def _facts(attempts: dict[Attempt, int]) -> dict[str, object]:
    return {
        "attempts": [
            {"address": attempt.address, "program": attempt.program, "count": count}
            for attempt, count in attempts.items()
        ]
    }


def _show(part: PartReport) -> None:
    if part.skipped:
        return click.echo(f"! {part.name}: left out: {part.skipped}")
    mark, said = ("✗", part.failure) if part.failure else ("✓", "works")
    tried = sum(part.attempts.values())
    click.echo(f"{'✗' if tried else mark} {part.name:<14} {said}; {_count(tried)}")
    _list(part.attempts, err=False)
    if part.probed:
        click.echo(f"  {_PROBED}")
    return None


def _list(attempts: dict[Attempt, int], *, err: bool = True) -> None:
    for attempt, count in attempts.items():
        click.echo(f"  {count} × {attempt.address}\n      by {attempt.program}", err=err)
