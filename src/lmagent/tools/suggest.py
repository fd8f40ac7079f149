"""Suggests paths for a missing file."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from lmagent.core.errors import ToolError
from lmagent.tools.beneath import Beneath
from lmagent.tools.sanitize import one_line
from lmagent.tools.walk import Walk

_LOOKED_AT = 3000
_SHOWN = 4


def missing(files: Beneath, path: str, hidden: Callable[[str], bool]) -> ToolError:
    """Return the error for a missing path, with the closest names that exist and are not hidden."""
    wanted = files.locate(path)
    near = [one_line(path) for path in _near(files, wanted, hidden)]  # a name may have bytes that are no UTF-8
    hint = f" Did you mean {', '.join(near)}?" if near else " Use ls or glob to see what there is."
    return ToolError(f"There is no {one_line(wanted)}.{hint}", data={"code": "missing", "near": near})


def _near(files: Beneath, wanted: str, hidden: Callable[[str], bool]) -> list[str]:
    """Return paths whose last name is the same or close, those in the wanted directory first."""
    import difflib  # only a wrong name pays for it

    by_name = dict[str, list[str]]()
    for entry in itertools.islice(Walk(files, hidden=hidden), _LOOKED_AT):
        by_name.setdefault(entry.path.rpartition("/")[2].casefold(), []).append(entry.path)
    directory, _, name = wanted.rpartition("/")
    close = difflib.get_close_matches(name.casefold(), by_name, n=_SHOWN, cutoff=0.6)
    found = [path for key in close for path in by_name[key]]
    return sorted(found, key=lambda path: path.rpartition("/")[0] != directory)[:_SHOWN]
