"""Jobs: `cron.json` of a workspace, in the format of earlier agents: a list of objects.

 [{"id": "nightly", "name": "Nightly report", "schedule": "daily 02:30", "timezone": "Europe/Berlin",
   "prompt": "Write the report.", "session_id": "", "enabled": true, "catch_up": "once"}]

A bad job is reported with its line and does not stop others. Every change keeps the rest of the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, cast, get_args

from msgspec import Struct

from lmagent.config.files import read_small, write_private
from lmagent.core.errors import ConfigError
from lmagent.core.ids import SESSION_RULE, is_session_id
from lmagent.schedule.rights import Rights, read_rights
from lmagent.schedule.times import Schedule, local_zone, parse_schedule
from lmagent.store.lock import locked

# Files with jobs, relative to the workspace: the place that earlier agents used, and our own.
FILES = ("cron.json", ".lmagent/cron.json")

# For times that passed while no scheduler ran: run the last one, none, or each.
CatchUp = Literal["once", "skip", "all"]

_PLAIN = re.compile("[^\\0\ud800-\udfff]*")
_TEXTS = ("id", "name", "schedule", "prompt", "session_id", "timezone", "catch_up", "command", "webhook")
_OTHERS = ("enabled", "permission", "allow")
# Keys that other programs write and nothing here uses.
_IGNORED = frozenset({"description", "created_at", "last_run", "next_run", "run_count", "last_status"})


class CronJob(Struct, frozen=True):
    """One job."""

    id: str
    schedule: Schedule
    prompt: str
    name: str = ""
    session_id: str = ""  # the session that it continues; empty for a new one each time
    enabled: bool = True
    catch_up: CatchUp = "once"
    command: str = ""
    webhook: str = ""
    rights: Rights = Rights()
    file: str = ""
    line: int = 0


class JobFault(ConfigError):
    """A job is wrong."""

    def __init__(self, error: ValueError, done: str, terminal: str = "", fix: str = "") -> None:
        field, _, reason = str(error).partition(": ")
        super().__init__(f"the job was not {done}: {error}", fix=fix, terminal=terminal)
        self.field = field.partition(",")[0] if reason else ""
        self.reason = reason or field


class JobList(Struct, frozen=True):
    """The jobs in the files, by id, and messages about the faulty ones."""

    jobs: Mapping[str, CronJob]
    problems: tuple[str, ...] = ()


def read_jobs(workspace: Path) -> JobList:
    """Read the jobs of a workspace. Never raises: faults become problems in the list."""
    jobs: dict[str, CronJob] = {}
    problems: list[str] = []
    for file in FILES:
        try:
            rows = _rows(_text(workspace / file), file)
        except ConfigError as error:
            problems.append(str(error))
            continue
        for row, line in rows:
            try:
                job = _job(row, file, line)
                if (other := jobs.get(job.id)) is not None:
                    raise ValueError(f"there is a job {job.id!r} already: {other.file} line {other.line}")
            except ValueError as error:
                problems.append(f"{file} line {line}: {_named(row)}{error}")
            else:
                jobs[job.id] = job
    return JobList(jobs, tuple(problems))


def stamps(workspace: Path) -> tuple[tuple[int, int] | None, ...]:
    """Return values that change with the files: their times of change (ns) and sizes."""

    def stamp(path: Path) -> tuple[int, int] | None:
        try:
            found = path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size

    return tuple(stamp(workspace / file) for file in FILES)


def add_job(workspace: Path, fields: Mapping[str, object]) -> CronJob:
    """Add a job to the file. If it is wrong, or its id is taken, nothing is changed."""
    file = FILES[0] if (workspace / FILES[0]).exists() else FILES[1]
    try:
        job = _job(dict(fields), file, 0)
    except ValueError as error:
        raise JobFault(error, "added", "lmagent cron add --help") from None

    def append(rows: list[Any]) -> None:
        if job.id in read_jobs(workspace).jobs:
            taken = ValueError(f"id: there is a job {job.id!r} already")
            raise JobFault(taken, "added", f"take another id, or: lmagent cron rm {job.id}", "take another id")
        rows.append(dict(fields))

    _rewrite(workspace, file, append)
    return job


def change_job(workspace: Path, id: str, fields: Mapping[str, object]) -> CronJob:
    """Change fields of a job in its file; an empty text removes a field, and the rest of its entry stays."""
    job = find_job(workspace, id)

    def change(rows: list[Any]) -> None:
        row = _row_of(rows, id)
        changed = {name: value for name, value in {**row, **fields}.items() if name not in fields or value != ""}
        try:
            _job(changed, job.file, 0)
        except ValueError as error:
            raise JobFault(error, "changed") from None
        row.clear()
        row.update(changed)

    _rewrite(workspace, job.file, change)
    return find_job(workspace, id)


def remove_job(workspace: Path, id: str) -> None:
    job = find_job(workspace, id)
    _rewrite(workspace, job.file, lambda rows: rows.remove(_row_of(rows, id)))


def set_enabled(workspace: Path, id: str, enabled: bool) -> CronJob:
    return change_job(workspace, id, {"enabled": enabled})


def find_job(workspace: Path, id: str) -> CronJob:
    """Return a job. If it does not exist, the error includes problems of the files."""
    found = read_jobs(workspace)
    if id not in found.jobs:
        known = ", ".join(found.jobs) or "no jobs exist"
        wrong = "".join(f"\n{problem}" for problem in found.problems)
        raise ConfigError(f"there is no job {id!r} ({known}){wrong}", terminal="lmagent cron list")
    return found.jobs[id]


# --- reading ----------------------------------------------------------------------------------------------------------


def _text(path: Path) -> str | None:
    content = read_small(path)
    try:
        return None if content is None else content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"{error.reason} at byte {error.start}"
        raise ConfigError(f"{path} is not UTF-8: {where}", fix="save it as UTF-8") from None


def _rows(text: str | None, file: str) -> list[tuple[Any, int]]:
    """Return the entries of the list, each with its line; empty if the file does not exist."""
    if text is None:
        return []
    if not text.strip():
        raise ConfigError(f"{file} is empty", fix="write [] for no jobs")
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        is_located = isinstance(error, json.JSONDecodeError)
        where, why = (f" line {error.lineno}", error.msg) if is_located else ("", str(error))
        raise ConfigError(f"{file}{where}: this is no JSON: {why}", fix="correct it; its jobs do not run") from None
    if not isinstance(document, list):
        raise ConfigError(f"{file} line 1: it must be a list of jobs: [ … ]", fix="put the jobs into [ and ]")
    rows = cast("list[Any]", document)
    return list(zip(rows, _lines(text, len(rows)), strict=True))


def _lines(text: str, count: int) -> list[int]:
    """Return the line on which each entry of the list begins."""
    decoder, position, found = json.JSONDecoder(), text.index("[") + 1, list[int]()
    for _ in range(count):
        while text[position] in " \t\r\n,":
            position += 1
        found.append(text.count("\n", 0, position) + 1)
        _, position = decoder.raw_decode(text, position)
    return found


def _job(row: Any, file: str, line: int) -> CronJob:
    """Read a job from its entry. Raises ValueError with the wrong field and its allowed values."""
    if not isinstance(row, dict):
        raise ValueError("a job is an object: { … }")
    fields = cast("dict[str, Any]", row)
    if unknown := [key for key in fields if key not in (*_TEXTS, *_OTHERS) and key not in _IGNORED]:
        raise ValueError(f"{unknown[0]!r} is no field of a job; known are {', '.join((*_TEXTS, *_OTHERS))}")
    texts: dict[str, str] = {}
    for key in _TEXTS:
        value = fields.get(key)
        if value is not None and not isinstance(value, str):
            raise ValueError(f"{key}: must be a text")
        if value and not _PLAIN.fullmatch(value):
            raise ValueError(f"{key}: contains an invalid character (NUL, or half of a surrogate pair)")
        texts[key] = (value or "").strip()
    enabled = fields.get("enabled", True)
    if not isinstance(enabled, bool):
        raise ValueError("enabled: must be true or false")
    _check(texts)
    rights = read_rights(fields.get("permission"), fields.get("allow"))
    if texts["session_id"] and rights != Rights():
        raise ValueError("permission, allow: a job has them in sessions of its own only, so without session_id")
    try:
        schedule = parse_schedule(texts["schedule"], texts["timezone"] or local_zone())
    except ValueError as error:
        raise ValueError(f"{'timezone' if 'time zone' in str(error) else 'schedule'}: {error}") from None
    rest = {key: texts[key] for key in ("id", "prompt", "name", "session_id", "command", "webhook")}
    catch_up = cast("CatchUp", texts["catch_up"] or "once")
    return CronJob(schedule=schedule, enabled=enabled, catch_up=catch_up, rights=rights, file=file, line=line, **rest)


def _check(texts: Mapping[str, str]) -> None:
    for key in ("id", "schedule", "prompt"):
        if not texts[key]:
            raise ValueError(f"{key}: is missing")
    if not is_session_id(texts["id"]):
        raise ValueError(f"id: {SESSION_RULE}")
    if texts["session_id"] and not is_session_id(texts["session_id"]):
        raise ValueError(f"session_id: {texts['session_id']!r} cannot be the id of a session")
    if texts["catch_up"] and texts["catch_up"] not in get_args(CatchUp):
        raise ValueError(f"catch_up: {texts['catch_up']!r} is not one of {', '.join(get_args(CatchUp))}")
    if texts["webhook"] and not re.match(r"https?://[^/\s]+", texts["webhook"]):
        raise ValueError(f"webhook: {texts['webhook']!r} is no http:// or https:// address")


def _named(row: Any) -> str:
    id = cast("dict[str, Any]", row).get("id") if isinstance(row, dict) else None
    return f"job {id!r}: " if id else ""


# --- writing ----------------------------------------------------------------------------------------------------------


def _rewrite(workspace: Path, file: str, change: Callable[[list[Any]], object]) -> None:
    """Change the list in a file under its lock; an unreadable file is not written."""
    path = workspace / file
    if path.is_symlink():
        raise ConfigError(f"{path} is a link, which is not written through", fix="change the file that it points to")
    lock = workspace / ".lmagent" / "cron.lock"
    with locked(lock, f"another process keeps the file of the jobs locked, by {lock}"):
        text = _text(path)
        rows = [row for row, _ in _rows(text, file)] if text and text.strip() else []
        change(rows)
        whole = json.dumps(rows, indent=2, ensure_ascii=False)
        if not _PLAIN.fullmatch(whole):  # another job's field is wrong, and stays unchanged
            whole = json.dumps(rows, indent=2)
        write_private(path, whole + "\n")


def _row_of(rows: list[Any], id: str) -> dict[str, Any]:
    """Return the entry of a job; raises ConfigError if another process removed it."""
    found = (cast("dict[str, Any]", row) for row in rows if isinstance(row, dict))
    row = next((row for row in found if str(row.get("id")).strip() == id), None)
    if row is None:
        raise ConfigError(f"there is no job {id!r} any more", terminal="lmagent cron list")
    return row
