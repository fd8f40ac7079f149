"""Proof: --require-proof, and the check that a project has of its own."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmagent.engine.review import Again, End

if TYPE_CHECKING:
    from lmagent.app.registry import Registry
    from lmagent.engine.endings import Ending
    from lmagent.engine.session import Session

TIMES = 3
"""How often a turn is told what is missing before it ends."""

NO_CHECK = "its tests; where it has none, write one first, such as for `python3 -m unittest`"

_TARGET = re.compile(r"^(check|tests?|verify)\s*:(?!=)", re.MULTILINE)


class RequireProof:
    """A turn that changed something is not done before a check ran after the last change and passed.

    Args:
        workspace: where the project's own check is looked for.
    """

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    async def after_calls(self, session: Session) -> End | None:
        """Nothing is asked for before the end."""
        return None

    async def at_end(self, session: Session, ending: Ending, answer: str) -> End | Again | None:
        """Refuse a done end without a proof. A sub-agent's work is proven by whom it works for."""
        if ending.kind != "done" or session.state.work.parent is not None:
            return None
        from lmagent.engine.evidence.verdict import judge, setting_of

        verdict = judge(session.state.evidence, setting_of(session))
        if not verdict.proof or verdict.passed:
            return None
        checks = (*session.agent.checks, *own_checks(self._workspace))
        run = f"`{checks[0]}`" if checks else f"a check of the project ({NO_CHECK})"
        text = (
            f"You are not done: {verdict.reason}. Run {run} after your last change, as a command of its own, and let "
            "it pass; then give the final answer. If it cannot pass, write BLOCKED: and the reason."
        )
        fix = f"see what was changed with /diff, and run {checks[0] if checks else 'the tests'} yourself"
        return Again("proof", text, TIMES, End("error", "unproven", f"not proven: {verdict.reason}", answer, fix))


def own_checks(workspace: Path) -> tuple[str, ...]:
    """Commands with which a project checks itself, as far as its files tell; the most likely one first."""
    from lmagent.engine.evidence.disk import beginning  # only who asks for a proof pays for it

    makefile = beginning(workspace / "Makefile") or beginning(workspace / "makefile")
    targets = _TARGET.findall(makefile)
    found = [f"make {min(targets, key=('check', 'test', 'tests', 'verify').index)}"] if targets else []
    script = _script(beginning(workspace / "package.json"))
    if script and "no test specified" not in script:
        found.append("npm test")
    configured = "[tool.pytest" in beginning(workspace / "pyproject.toml") or "[tool:pytest]" in beginning(
        workspace / "setup.cfg"
    )
    if configured or any((workspace / name).exists() for name in ("pytest.ini", "conftest.py", "tests/conftest.py")):
        found.append("python3 -m pytest")
    if (workspace / "Cargo.toml").exists():
        found.append("cargo test")
    if (workspace / "go.mod").exists():
        found.append("go test ./...")
    return tuple(found)


def register(registry: Registry) -> None:
    """Hold every turn to it where the settings say so."""
    if registry.settings.require_proof:
        registry.reviews.append(RequireProof(registry.workspace))


def _script(text: str) -> str:
    """The test script of a package.json."""
    import json  # only who asks for a proof pays for it

    with suppress(ValueError, RecursionError):
        package: Any = json.loads(text)
        scripts: Any = package.get("scripts") if isinstance(package, dict) else None  # type: ignore[reportUnknownMemberType]
        script: Any = scripts.get("test") if isinstance(scripts, dict) else None  # type: ignore[reportUnknownMemberType]
        return script if isinstance(script, str) else ""
    return ""
