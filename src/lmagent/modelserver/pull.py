"""Pull: fetch a model of a hub into the library."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from lmagent.modelserver.choice import Choice, choose, wanted
from lmagent.modelserver.download import Download, Ports, gigabytes, is_there, part_of, unwritable
from lmagent.modelserver.foreign import MAX_DEPTH
from lmagent.modelserver.hub import Hub, HubFile
from lmagent.modelserver.spec import ModelServerError
from lmagent.store.files import make_private

SPARE = 256 << 20
"""Bytes of the disk that are left free."""

_NAME = re.compile(r"[A-Za-z0-9_][\w .+()\[\],@=-]{0,200}", re.ASCII)


class Pulled(Struct, frozen=True):
    """What was fetched.

    Attributes:
        paths: the files, the model's first one first.
        fetched: whether anything had to be.
        choice: what was chosen, and what else there would be.
        repo: the repository.
    """

    paths: tuple[Path, ...]
    fetched: bool
    choice: Choice
    repo: str


class Puller:
    """Fetches models into a folder.

    Args:
        hub: where from.
        folder: the library's folder.
        ports: what a download needs of the world.
        free: free bytes of the disk of a folder.
    """

    def __init__(
        self,
        hub: Hub,
        folder: Path,
        ports: Ports,
        *,
        free: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
    ) -> None:
        self._hub = hub
        self._folder = folder
        self._ports = ports
        self._free = free

    async def pull(self, name: str, *, with_mmproj: bool = False) -> Pulled:
        """Fetch a model, or the rest of it.

        Args:
            name: see `choice.wanted`.
            with_mmproj: fetch the projector too, with which it sees images.

        Raises:
            ModelServerError: it cannot be fetched; what has come is kept where it is of use.
        """
        asked = wanted(name)
        choice = choose(asked.repo, await self._hub.files(asked.repo), asked.variant)
        files = list(choice.chosen.files)
        home = self._home(asked.repo, files[0])
        if with_mmproj and not choice.projectors:
            fix = "leave --with-mmproj out: this model does not see images"
            raise ModelServerError(f"{asked.repo} has no projector", status=400, code="no_projector", fix=fix)
        if with_mmproj:
            files.append(choice.projectors[0])
        targets = [home / _safe(file.name) for file in files]
        self._ports.progress.note(_described(choice))
        self._check_space(files, targets)
        fetched = False
        try:
            for file, target in zip(files, targets, strict=True):
                if not is_there(file, target):
                    _make(home)
                    await Download(self._hub, asked.repo, file, target, self._ports).run()
                    fetched = True
        except BaseException:
            self._tidy(home)
            raise
        return Pulled(tuple(targets), fetched, choice, asked.repo)

    def _home(self, repo: str, file: HubFile) -> Path:
        parts = [*repo.split("/"), *file.path.split("/")[:-1]]
        if len(parts) > MAX_DEPTH:
            fix = "fetch it by hand, and take it in: lmagent models import FILE"
            text = f"{file.name[:80]!r} lies too deep in the folders of {repo}"
            raise ModelServerError(text, status=502, fix=fix)
        return self._folder.joinpath(*(_safe(part) for part in parts))

    def _check_space(self, files: Sequence[HubFile], targets: Sequence[Path]) -> None:
        missing = sum(
            file.size - min(_size(part_of(target)), file.size)
            for file, target in zip(files, targets, strict=True)
            if not is_there(file, target)
        )
        folder = self._folder
        while not folder.exists():
            folder = folder.parent
        free = self._free(folder)
        if missing and missing + SPARE > free:
            text = f"{gigabytes(missing)} are still to be fetched, and {self._folder} has {gigabytes(free)} free"
            fix = "make room, choose a smaller quantisation, or set AGENT_DATA_DIR to a folder on a larger disk"
            raise ModelServerError(text, status=507, code="disk_full", fix=fix)

    def _tidy(self, home: Path) -> None:
        """Take away folders in which nothing came to lie."""
        while home != self._folder and self._folder in home.parents:
            try:
                home.rmdir()
            except OSError:
                return
            home = home.parent


def _described(choice: Choice) -> str:
    """What was chosen, and what else there would be."""
    others = ", ".join(f"{item.quant or item.name} ({gigabytes(item.size)})" for item in choice.others)
    taken = f"downloading {choice.chosen.name} ({gigabytes(choice.chosen.size)})"
    return f"{taken}; there are also {others}" if others else taken


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _safe(name: str) -> str:
    """A name from a hub as one on this disk; it leads nowhere else."""
    if not _NAME.fullmatch(name) or name.endswith((".", " ")):
        fix = "fetch it by hand, and take it in: lmagent models import FILE"
        raise ModelServerError(f"the hub has a file with the odd name {name[:80]!r}", status=502, fix=fix)
    return name


def _make(folder: Path) -> None:
    try:
        make_private(folder)
    except OSError as error:
        raise unwritable(folder, error) from error
