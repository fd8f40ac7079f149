"""Proof: --require-proof."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lmagent.engine.review import Again, End

if TYPE_CHECKING:
    from lmagent.app.registry import Registry
    from lmagent.engine.endings import Ending
    from lmagent.engine.session import Session

TIMES = 3
"""How often a turn is told what is missing before it ends."""

NO_CHECK = "its tests; where it has none, write one first, such as for `python3 -m unittest`"


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
        from lmagent.engine.evidence.project import own_checks
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


def register(registry: Registry) -> None:
    """Hold every turn to it where the settings say so."""
    if registry.settings.require_proof:
        registry.reviews.append(RequireProof(registry.workspace))
