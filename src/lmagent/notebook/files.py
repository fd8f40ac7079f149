"""Files: `project.json` and `lab_notebook.md` in the workspace's top folder. One process changes them at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from lmagent.core.errors import StoreError, ToolError
from lmagent.core.ports import Clock
from lmagent.notebook.record import PAUSED, NotAProject, Project, encode, move, parse
from lmagent.store.lock import locked
from lmagent.tools.beneath import Beneath, LoadedFile
from lmagent.tools.change import difference_of, load_if_there, sha256

PROJECT, NOTEBOOK = "project.json", "lab_notebook.md"
LARGEST = 1 << 20  # bytes of project.json
LARGEST_NOTEBOOK = 4 << 20
LONGEST = 4000  # characters of a note
PATIENCE = 2.0  # seconds to wait for another process that changes the files

MISSING = f"there is no project here: no {PROJECT}"
DAMAGED, FOREIGN = "damaged", "foreign"  # codes of errors of project.json; another program's concerns no user


class Written(Struct, frozen=True):
    """A change of project.json, and its facts for the log of a call."""

    project: Project
    facts: dict[str, Any]


class ProjectFiles:
    """The files of one workspace. All methods raise ToolError; a file that cannot be read is never replaced."""

    def __init__(self, workspace: Path, clock: Clock) -> None:
        self.workspace = workspace
        self._clock = clock

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(self) -> Project | None:
        """Return the project; None without project.json."""
        found = self._load()
        return None if found is None else self._parsed(found)

    def need(self) -> Project:
        if (project := self.read()) is None:
            raise ToolError(MISSING)
        return project

    def entries(self, count: int) -> list[str]:
        """Return the last entries of the notebook, each on its first line."""
        found = self._notebook()
        text = "" if found is None else found.data.decode("utf-8", "replace")
        return [line[2:] for line in text.splitlines() if line.startswith("- ")][-count:]

    def _load(self) -> LoadedFile | None:
        with Beneath(self.workspace) as files:
            return load_if_there(files, PROJECT, LARGEST)

    def _parsed(self, found: LoadedFile) -> Project:
        try:
            return parse(found.data)
        except (ValueError, RecursionError) as why:
            ours = b'"state"' in found.data and b'"tasks"' in found.data and not isinstance(why, NotAProject)
            what = "damaged" if ours else "damaged or another program's file"
            text = f"{PROJECT} is {what}: {why}. It stays as it is."
            raise ToolError(text, data={"code": DAMAGED if ours else FOREIGN}) from None

    def _notebook(self) -> LoadedFile | None:
        with Beneath(self.workspace) as files:
            return load_if_there(files, NOTEBOOK, LARGEST_NOTEBOOK)

    # --- changing ---------------------------------------------------------------------------------------------------

    def create(self, goal: str, name: str = "") -> Written:
        if not goal.strip():
            raise ToolError("A project needs a goal.")

        def build(project: Project | None) -> Project:
            if project is not None:
                raise ToolError(f"{PROJECT} exists already, of the project {project.name!r}. Nothing was changed.")
            return Project(name.strip() or self.workspace.name, goal.strip())

        return self.change(build)

    def move(self, to: str) -> Written:
        """Change the state; an empty one resumes a paused project."""

        def build(project: Project | None) -> Project:
            if project is None:
                raise ToolError(MISSING)
            wanted = to.strip().lower()
            if not wanted and project.state != PAUSED:
                raise ToolError(f"The project is {project.state}; it is not paused. Nothing was changed.")
            try:
                return move(project, wanted or project.moves[0])
            except ValueError as why:
                raise ToolError(f"{why}. Nothing was changed.") from None

        return self.change(build)

    def change(self, build: Callable[[Project | None], Project]) -> Written:
        """Replace project.json whole, or not at all."""
        with self._locked():
            old = self._load()
            before = None if old is None else self._parsed(old)
            after = build(before)
            if after == before:
                return Written(after, {})
            new = encode(after, self._clock.now())
            with Beneath(self.workspace) as files:
                files.write_atomic(PROJECT, new, over=None if old is None else old.stamp)
            difference = difference_of(PROJECT, b"" if old is None else old.data, new)
            return Written(after, {"path": PROJECT, "sha256": sha256(new), "changed": True, "diff": difference})

    def add_note(self, text: str, by: str) -> str:
        """Append an entry to the notebook, on the disk when this returns; return its first line."""
        text = text.strip()
        if not text or len(text) > LONGEST:
            raise ToolError(f"A note has 1 to {LONGEST:,} characters, not {len(text):,}. Nothing was written.")
        now = datetime.fromtimestamp(self._clock.now()).astimezone()
        entry = f"- {now:%H:%M} {by}: " + "\n  ".join(text.splitlines())
        with self._locked():
            self._append(f"{now:%Y-%m-%d}", entry)
        return entry.splitlines()[0][2:]

    def _append(self, date: str, entry: str) -> None:
        old = self._notebook()
        before = "" if old is None else old.data.decode("utf-8", "surrogateescape")
        dates = [line[3:] for line in before.splitlines() if line.startswith("## ")]
        head = "" if before else "# Lab notebook\n"
        head += "" if dates[-1:] == [date] else f"\n## {date}\n\n"
        torn = "\n" if before and not before.endswith("\n") else ""
        content = f"{before}{torn}{head}".encode("utf-8", "surrogateescape")
        content += f"{entry}\n".encode("utf-8", "surrogatepass")
        with Beneath(self.workspace) as files:
            files.write_atomic(NOTEBOOK, content, over=None if old is None else old.stamp)

    @contextmanager
    def _locked(self) -> Generator[None]:
        lock = self.workspace / ".lmagent" / "project.lock"
        try:
            with locked(lock, "another process changes the project", patience=PATIENCE):
                yield
        except StoreError as error:
            raise ToolError(f"{error.message}. Nothing was changed.") from None
