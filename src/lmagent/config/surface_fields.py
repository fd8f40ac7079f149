"""Surface fields: settings of how a person is shown things and called."""

from __future__ import annotations

from lmagent.config.field import Field

SURFACE_FIELDS: tuple[Field, ...] = (
    Field(
        "notify_command",
        "text",
        "A command of yours that is run when an approval or a plan waits for you, or a turn has ended. It runs as you, "
        "outside of the sandbox, with LMAGENT_EVENT (approval, plan, finished), LMAGENT_OUTCOME, LMAGENT_SESSION, "
        "LMAGENT_TITLE, LMAGENT_TEXT and LMAGENT_WORKSPACE.",
        "NOTIFY_COMMAND",
        folder="elsewhere",
    ),
    Field("notify_bell", "switch", "Ring the terminal's bell on the same occasions.", "NOTIFY_BELL"),
    Field(
        "notify_after",
        "number",
        "Seconds since your last input before which you are taken to be there still, and not called.",
        "NOTIFY_AFTER",
        low=0,
    ),
)
