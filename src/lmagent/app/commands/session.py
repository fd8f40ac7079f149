"""The built-in slash commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

from lmagent.app.commands.charts import DAYS, columns, day_bars, tool_rows, window_map, window_parts
from lmagent.app.records import export_session, session_rows
from lmagent.app.registry import SlashCommand
from lmagent.app.slash import (
    CHANGES,
    CONVERSATION,
    FACTS,
    GROUPS,
    OWN,
    Choice,
    SlashContext,
    SlashResult,
    all_commands,
    need_session,
)
from lmagent.core.commands import Compact, Continue, Mark, Redo, Rename, Undo
from lmagent.core.errors import ConfigError, SandboxError
from lmagent.core.events import (
    FilesRestored,
)
from lmagent.core.lines import grant_in_a_line
from lmagent.core.model import ModelReply, TextChunk
from lmagent.core.plurals import age
from lmagent.core.titles import title_of
from lmagent.core.view import TextBlock
from lmagent.engine.context.aside import ask_aside
from lmagent.engine.session import Session
from lmagent.engine.undo import by_weight, chosen, diff, shared_with
from lmagent.providers.concealed import shown
from lmagent.store.spent import day_of

if TYPE_CHECKING:
    from lmagent.app.host import Host

Run = Callable[[SlashContext, str], Awaitable[SlashResult]]

PATHS_SHOWN = 20

OFFERED = 20  # sessions that `/resume` offers

KEYS = """Keys:
Enter                    send; steers the agent while it works
Alt+Enter                a new line; queues the message while the agent works
Esc, Ctrl+C              stop the agent or your command; Ctrl+C twice leaves
Ctrl+O                   show all that the last command of the agent printed
Up, Down, Tab            earlier input; choose from a menu, accept
@PATH                    attach a file of the workspace, or an image
!COMMAND                 run a command in the sandbox, and show the model
!!COMMAND                run it in your own shell, outside of the sandbox"""


def commands() -> Iterator[SlashCommand]:
    table: dict[str, tuple[tuple[str, str, str, Run], ...]] = {
        CONVERSATION: (
            ("new", "", "start a new session", _new),
            ("resume", "[ID]", "continue another session", _resume),
            ("sessions", "[words]", "list sessions, newest first", _sessions),
            ("session", "", "show this session's id", _session),
            ("rename", "TITLE", "give this session a title", _rename),
            ("pin", "[off]", "list this session before all others", _pin),
            ("archive", "[off]", "leave this session out of the list of sessions", _archive),
            ("fork", "[SEQ]", "continue in a copy of this session, up to event SEQ", _fork),
            ("export", "[md|html|jsonl]", "write this session to a file in the workspace", _export),
            ("copy", "", "put the last answer on the clipboard", _copy),
            ("compact", "[FOCUS]", "shorten the conversation now, keeping what FOCUS says", _compact),
            ("quit", "", "leave", _quit),
        ),
        CHANGES: (
            ("diff", "", "show everything that the agent changed in this session", _diff),
            ("undo", "[N|turn|all]", "undo the last N calls, the last turn, or all of them", _undo),
            ("redo", "[N|all]", "redo undone changes", _redo),
        ),
        FACTS: (
            ("help", "", "list the commands", _help),
            ("status", "", "show server, model, mode and workspace", _status),
            ("context", "", "show what fills the window", _context),
            ("usage", "", "show tokens used, and bars of the last 14 days", _usage),
            ("tools", "", "list the tools", _tools),
        ),
    }
    for group, rows in table.items():
        for name, usage, text, run in rows:
            yield SlashCommand(name, usage, text, run, group)
    yield SlashCommand("btw", "QUESTION", "ask on the side, while the agent works too", _btw, CONVERSATION, beside=True)


async def _help(context: SlashContext, _: str) -> SlashResult:
    groups = dict[str, list[tuple[str, str]]]()
    for item in all_commands(context.host).values():
        groups.setdefault(item.group, []).append((f"/{item.name} {item.usage}", item.help))
    places = (*GROUPS, *(group for group in groups if group not in (*GROUPS, OWN)), OWN)
    parts = ("\n".join((f"{group}:", *columns(groups[group], 25))) for group in sorted(groups, key=places.index))
    return SlashResult("\n\n".join((*parts, KEYS)), headed=True)


async def _sessions(context: SlashContext, words: str) -> SlashResult:
    rows = [
        f"{row.id}  {age(context.host.clock.now() - row.updated):>6}  {row.status:<11}  {row.title}"
        for row in session_rows(context.host.store, 20, words, shelf="all" if words else "open")
    ]
    return SlashResult("\n".join(rows) or "no sessions yet")


async def _new(_: SlashContext, __: str) -> SlashResult:
    return SlashResult("a new session begins with your next message", fresh=True)


async def _resume(context: SlashContext, name: str) -> SlashResult:
    if not name:
        return _offered_sessions(context)
    session = await context.host.open_session(name)
    cut_off = (session.state.turn_open or bool(session.state.inputs)) and not session.running
    if cut_off:
        await session.send(Continue(by="slash"))
    more = "\nIts last turn was cut off and continues now." if cut_off else ""
    return SlashResult(f"resumed {session.state.session}: {session.state.title}{more}", session=session, run=cut_off)


def _offered_sessions(context: SlashContext) -> SlashResult:
    now, here = context.host.clock.now(), context.session.state.session if context.session else ""
    choices = tuple(
        Choice(f"/resume {row.id}", f"{age(now - row.updated):>6}  {row.title or '(no title)'}")
        for row in session_rows(context.host.store, OFFERED, "", shelf="open")
        if row.id != here
    )
    listed = "\n".join(f"{choice.line}  {choice.label}" for choice in choices)
    return SlashResult(listed or "there is no session to resume yet", choices=choices)


async def _fork(context: SlashContext, seq: str) -> SlashResult:
    if seq and not seq.isdigit():
        raise ConfigError(f"{seq!r} is not an event number", fix="/fork alone copies the whole session")
    fork = await context.host.fork_session(need_session(context).state.session, int(seq) if seq else None)
    return SlashResult(f"now in {fork.state.session}, a copy", session=fork)


async def _session(context: SlashContext, _: str) -> SlashResult:
    return SlashResult(need_session(context).state.session)


async def _undo(context: SlashContext, which: str) -> SlashResult:
    command = Undo(count=_count(which, "/undo"), turn=which == "turn", by="slash")
    shared = shared_with(chosen(need_session(context), command))
    result = await _restore(context, command)
    return SlashResult(f"{result.text}\n{shared[0].upper()}{shared[1:]}; /redo brings it back.") if shared else result


async def _redo(context: SlashContext, which: str) -> SlashResult:
    return await _restore(context, Redo(count=_count(which, "/redo"), by="slash"))


def _count(which: str, command: str) -> int:
    if which in ("", "turn"):
        return 1
    if which == "all":
        return 0
    if not which.isdigit() or which == "0":
        raise ConfigError(f"{command} does not know {which!r}", fix=f"{command}, {command} 3 or {command} all")
    return int(which)


async def _restore(context: SlashContext, command: Undo | Redo) -> SlashResult:
    session = need_session(context)
    event = await session.send(command)
    assert isinstance(event, FilesRestored)
    lines = [f"{'Undone' if event.to == 'before' else 'Redone'}: {_listed(event.paths) or 'nothing'}"]
    for refusal in event.refused[:PATHS_SHOWN]:
        how = "in part" if refusal.path in event.paths else "left alone"
        lines.append(f"{how}: {refusal.path}: {refusal.reason}")
    if len(event.refused) > PATHS_SHOWN:
        lines.append(f"left alone: {len(event.refused) - PATHS_SHOWN} more")
    return SlashResult("\n".join([*lines, *_tasks_with(session, event)]))


def _tasks_with(session: Session, event: FilesRestored) -> list[str]:
    changed = session.state.work.others[-1] if session.state.work.others else None
    if changed is None or changed.seq != event.seq - 1:
        return []
    parts = [f"{task.id} is {task.status} again" for task in changed.items[:PATHS_SHOWN]]
    parts += [f"{id} is gone" for id in changed.removed[:PATHS_SHOWN]]
    parts += ["the task state is as it was"] if changed.state is not None else []
    return [f"tasks: {', '.join(parts)}"]


def _listed(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - PATHS_SHOWN} more" if len(paths) > PATHS_SHOWN else ""
    return ", ".join(by_weight(paths)[:PATHS_SHOWN]) + more


async def _diff(context: SlashContext, _: str) -> SlashResult:
    text = await diff(need_session(context))
    shared = shared_with(need_session(context).state.changes)
    if not text:
        return SlashResult("The agent has changed nothing in this session.")
    return SlashResult(f"{shared[0].upper()}{shared[1:]}:\n{text}" if shared else text, diff=True)


async def _rename(context: SlashContext, title: str) -> SlashResult:
    if not title:
        raise ConfigError("/rename needs a title")
    await need_session(context).send(Rename(title=title, by="slash"))
    return SlashResult(f"renamed: {title_of(title, None)}")


async def _pin(context: SlashContext, off: str) -> SlashResult:
    await need_session(context).send(Mark(pinned=not _is_off("/pin", off), by="slash"))
    return SlashResult("no longer pinned" if off else "pinned: it is listed before other sessions")


async def _archive(context: SlashContext, off: str) -> SlashResult:
    await need_session(context).send(Mark(archived=not _is_off("/archive", off), by="slash"))
    return SlashResult("listed again" if off else "archived: it is left out of the list of sessions")


def _is_off(command: str, word: str) -> bool:
    if word not in ("", "off"):
        raise ConfigError(f"{command} does not know {word!r}", fix=f"{command}, or {command} off")
    return word == "off"


async def _status(context: SlashContext, _: str) -> SlashResult:
    host, session = context.host, context.session
    rows = {
        "workspace": str(host.workspace),
        "server": shown(host.settings.endpoint),
        "model": (session.state.model if session else host.agent.model) or "(the loaded model)",
        "mode": session.state.mode if session else host.settings.permission_mode,
        "session": session.state.session if session else "(none yet)",
        "sandbox": await _sandbox(host),
    }
    if session is not None:
        rows["context"] = f"{session.state.estimate_tokens():,} of {session.window.tokens:,} tokens"
        rows["grants"] = ", ".join(map(grant_in_a_line, session.state.grants)) or "(none)"
    return SlashResult("\n".join(f"{name:<10} {value}" for name, value in rows.items()))


async def _sandbox(host: Host) -> str:
    """Return the sandbox and its promises; this probes for a sandbox."""
    confined = host.registry.confined
    try:
        await confined.get()
    except SandboxError as refusal:
        return f"none: {refusal}"
    report = confined.report
    assert report is not None
    kept = ", ".join(f"{'' if promise.kept else 'NOT '}{promise.name}" for promise in report.promises)
    return f"{report.backend} {report.version} ({kept})"


async def _context(context: SlashContext, _: str) -> SlashResult:
    session = need_session(context)
    state = session.state
    drawn = window_map(window_parts(state), session.window, state.estimate_tokens(), state.compactions)
    facts = [text for tell in context.host.registry.facts if (text := tell())]
    return SlashResult("\n\n".join((drawn, *facts)))


async def _usage(context: SlashContext, _: str) -> SlashResult:
    now = context.host.clock.now()
    with context.host.store.index() as index:
        index.refresh()
        days = index.spending(day_of(now - (DAYS + 1) * 86_400)).by_day
    bars = day_bars(days, day_of(now))
    here = _usage_here(context, context.session) if context.session is not None else ""
    return SlashResult(f"{here}\n\n{bars}" if here else bars)


def _usage_here(context: SlashContext, session: Session) -> str:
    state = session.state
    usage, pace = state.usage, context.view.pace
    cached = f"{usage.cached_tokens / usage.prompt_tokens:.0%}" if usage.prompt_tokens else "-"
    estimate = " (estimated: the server reports no usage)" if usage.estimated else ""
    return (
        f"This session: {state.steps_total} model calls{estimate}\n"
        f"prompt     {usage.prompt_tokens:>10,} tokens, {cached} from the server's cache\n"
        f"completion {usage.completion_tokens:>10,} tokens\n"
        f"re-read    {pace.reread_total:>10,} tokens that the server had in its cache before\n"
        f"speed      reads {_speed(pace.read_per_s)}, writes {_speed(pace.write_per_s)}"
    )


def _speed(tokens_per_s: float) -> str:
    return f"{tokens_per_s:,.0f} tokens/s" if tokens_per_s else "(not known yet)"


async def _compact(context: SlashContext, focus: str) -> SlashResult:
    await need_session(context).send(Compact(focus=focus, by="slash"))
    return SlashResult("shortening the conversation", run=True)


async def _tools(context: SlashContext, _: str) -> SlashResult:
    return SlashResult("\n".join(tool_rows(context.host.toolbox, 80)))


async def _btw(context: SlashContext, question: str) -> SlashResult:
    session = need_session(context)
    if not question:
        raise ConfigError("/btw needs a question")
    text = ""
    async for event in ask_aside(session, question):
        if isinstance(event, TextChunk):
            text += event.text
        elif isinstance(event, ModelReply):
            text = event.message.text or text
    return SlashResult(text or "(no answer)")


async def _export(context: SlashContext, form: str) -> SlashResult:
    session = need_session(context).state.session
    text = export_session(context.host.workspace, context.host.store, session, form or "md")
    # A client may name a session README or AGENTS; the files of that name are not the session's to replace.
    stem = session if session[0].isdigit() else f"session-{session}"
    for number in count(1):
        path = context.host.workspace / f"{stem}{f'-{number}' if number > 1 else ''}.{form or 'md'}"
        with suppress(FileExistsError), path.open("x", encoding="utf-8") as file:
            file.write(text)
            return SlashResult(f"written to {path}")
    raise AssertionError("unreachable")


async def _copy(context: SlashContext, _: str) -> SlashResult:
    answers = [block.text for block in context.view.blocks if isinstance(block, TextBlock)]
    if not answers:
        raise ConfigError("there is no answer to copy yet")
    return SlashResult(copy=answers[-1])


async def _quit(_: SlashContext, __: str) -> SlashResult:
    return SlashResult(quit=True)
