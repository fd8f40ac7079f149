"""Programs that run inside a sandbox or beside its commands, sent there as text: standard library only (3.8)."""

from __future__ import annotations

from importlib import resources

_BOOT = """
import sys, types
for name, text in {sources!r}:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
module.main()
"""


def program(module: str, *arguments: str) -> list[str]:
    """Return the arguments of a python3 that runs one of these programs, with the standard library alone."""
    folder = resources.files(__name__)
    sources = [(f"{__name__}.{name}", (folder / f"{name}.py").read_text()) for name in ("keeper", module)]
    return ["-I", "-S", "-c", _BOOT.format(sources=sources), *arguments]
