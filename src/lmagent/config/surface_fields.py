"""Surface and agent fields: how the user is notified; what the agent is told, how it samples, which tools there are."""

from __future__ import annotations

from lmagent.config.field import Field

SURFACE_FIELDS: tuple[Field, ...] = (
    Field(
        "shipped_rules",
        "switch",
        "Ask before files that may hold secrets are read, and refuse commands that wipe a disk or the workspace.",
        "LMAGENT_SHIPPED_RULES",
        folder="trusted",
    ),
    Field(
        "theme",
        "choice",
        "Colours of the terminal: for a light or a dark background, or none. `/theme` changes it.",
        "LMAGENT_THEME",
        choices=("auto", "light", "dark", "none"),
    ),
    Field(
        "log_level",
        "choice",
        "What goes to .lmagent/logs/lmagent.log of the workspace: error (unexpected errors), warning (retries, "
        "notices), info (turns, tools, model calls), debug (each request by size and time); contents and keys never.",
        "AGENT_LOG_LEVEL",
        "--log-level",
        choices=("debug", "info", "warning", "error"),
    ),
    Field(
        "debug",
        "switch",
        "Log at level debug, and print it to standard error too.",
        "LMAGENT_DEBUG",
        "--debug",
        folder="elsewhere",
    ),
    Field(
        "own_shell",
        "switch",
        "Run `!COMMAND` of the terminal in your own shell, outside of the sandbox, and do not ask about `!!COMMAND`.",
        "OWN_SHELL",
        folder="elsewhere",
    ),
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


def _tools(name: str, what: str, variable: str) -> Field:
    return Field(name, "switch", f"Offer {what}.", variable, folder="stricter")


AGENT_FIELDS: tuple[Field, ...] = (
    Field(
        "llm_parallel",
        "integer",
        "Sessions that a local server can serve side by side, each with its own prompt cache, if the server does not "
        "report it. None: one at a time on LM Studio, Ollama and unknown servers; the others wait for the turn to end.",
        "LLM_PARALLEL",
        low=1,
        high=1000,
        optional=True,
    ),
    Field(
        "system",
        "text",
        "A system text of your own, instead of the one that suits the window.",
        "LMAGENT_SYSTEM",
        folder="trusted",
    ),
    Field(
        "llm_top_p",
        "number",
        "Nucleus sampling; none leaves it to the server.",
        "LLM_TOP_P",
        low=0,
        high=1,
        optional=True,
    ),
    Field(
        "llm_frequency_penalty",
        "number",
        "Penalty for tokens by how often they came; none leaves it to the server.",
        "LLM_FREQUENCY_PENALTY",
        low=-2,
        high=2,
        optional=True,
    ),
    Field(
        "llm_presence_penalty",
        "number",
        "Penalty for tokens that came at all; none leaves it to the server.",
        "LLM_PRESENCE_PENALTY",
        low=-2,
        high=2,
        optional=True,
    ),
    Field(
        "llm_seed",
        "integer",
        "Seed of the sampling, for equal answers to equal requests where the server can; none leaves it to the server.",
        "LLM_SEED",
        low=0,
        optional=True,
    ),
    Field(
        "bounded_steps",
        "integer",
        "Model calls of a turn in bounded work (`/work bounded`, and chats of earlier clients).",
        "LMAGENT_BOUNDED_STEPS",
        low=1,
        folder="smaller",
    ),
    Field(
        "tools_allow",
        "rules",
        "Names of the only tools that sessions have. Empty: all.",
        "LMAGENT_TOOLS_ALLOW",
        folder="trusted",
    ),
    _tools("enable_shell", "the tools that run commands: shell and its background jobs", "AGENT_ENABLE_SHELL"),
    _tools(
        "enable_files", "the tools for files: read, write, edit, glob, grep, ls, mkdir, vision", "AGENT_ENABLE_FILES"
    ),
    _tools("enable_fetch", "the tools that fetch from the web", "AGENT_ENABLE_FETCH"),
    _tools("enable_data_view", "the tool that looks into tables", "AGENT_ENABLE_DATA_VIEW"),
    _tools("enable_python", "the tool that runs Python", "AGENT_ENABLE_PYEXE"),
)
