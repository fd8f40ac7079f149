"""A session for reading: Markdown, one HTML file without other files, or its events."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape

from lmagent.core.events import DurableEvent, encode
from lmagent.core.plurals import plural
from lmagent.store.transcript import Transcript, TranscriptEntry, transcript_of

_TICKS = re.compile(r"`+")
_SAFE_IMAGE = re.compile(r"image/(png|jpeg|gif|webp)")
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*")

_STYLE = """
:root { color-scheme: light dark; --line: #d0d0d8; --soft: #f4f4f7; --text: #1c1c22; --page: #fff; --dim: #5c5c68;
  --bad: #b3261e; --user: #e8eefc; }
@media (prefers-color-scheme: dark) { :root { --line: #3a3a44; --soft: #22222a; --text: #e8e8ee; --page: #16161b;
  --dim: #a0a0ae; --bad: #ff8a80; --user: #1f2a44; } }
body { max-width: 52rem; margin: 2rem auto; padding: 0 1rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
header, footer, .dim { color: var(--dim); font-size: .875rem; }
section { margin: 1rem 0; }
.text { white-space: pre-wrap; margin: 0; }
.user { background: var(--user); border-radius: .5rem; padding: .75rem 1rem; }
.bad { color: var(--bad); }
details { border: 1px solid var(--line); border-radius: .5rem; padding: .25rem .75rem; margin: .5rem 0; }
summary { cursor: pointer; font-family: ui-monospace, monospace; font-size: .875rem; }
pre { white-space: pre-wrap; background: var(--soft); padding: .75rem; border-radius: .25rem; font-size: .8125rem; }
img { max-width: 100%; }
"""


def to_jsonl(events: Iterable[DurableEvent]) -> str:
    return "".join(f"{encode(event).decode()}\n" for event in events)


# --- Markdown ---------------------------------------------------------------------------------------------------


def to_markdown(events: Iterable[DurableEvent]) -> str:
    """Format the session as Markdown. Control characters are left out, since this is also shown in terminals."""
    return _as_markdown(transcript_of(events))


def to_talk(events: Iterable[DurableEvent]) -> str:
    """Format the session as Markdown, without the notes that only the model reads."""
    transcript = transcript_of(events)
    transcript.entries = [entry for entry in transcript.entries if not entry.for_model]
    return _as_markdown(transcript)


def _as_markdown(transcript: Transcript) -> str:
    blocks = [f"# {transcript.title or transcript.session}", "  \n".join(_facts(transcript))]
    blocks += [_markdown(entry) for entry in transcript.entries]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _markdown(entry: TranscriptEntry) -> str:
    match entry.kind:
        case "user":
            images = f"\n\n({len(entry.images)} image(s))" if entry.images else ""
            return f"## {entry.label or 'User'}\n\n{entry.text}{images}"
        case "assistant":
            return f"## Assistant\n\n{entry.text}"
        case "thinking":
            return _quoted(f"*Thinking*\n\n{entry.text}")
        case "tool":
            call = f"**{entry.label}** {_code(entry.arguments)}".rstrip()
            state = "" if entry.status == "ok" else f" — {entry.status}"
            return f"{call}{state}\n\n{_fenced(entry.text)}" if entry.text else f"{call}{state}"
        case "note":
            return _quoted(f"*{entry.label}*\n\n{entry.text}" if entry.text else f"*{entry.label}*")


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _fenced(text: str) -> str:
    """Return a code block; its fence is longer than any run of backticks in the text."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"


def _code(text: str) -> str:
    if not text:
        return ""
    flat = " ".join(text.split())
    ticks = "`" * (_longest_run(flat) + 1)
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{ticks}{pad}{flat}{pad}{ticks}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in _TICKS.findall(text)), default=0)


# --- HTML ----------------------------------------------------------------------------------------------------------


def to_html(events: Iterable[DurableEvent]) -> str:
    """Format the session as one HTML page: no scripts, nothing from outside, everything escaped."""
    transcript = transcript_of(events)
    title = escape(transcript.title or transcript.session)
    facts = "<br>".join(map(escape, _facts(transcript)))
    system = _details("System text", transcript.system) if transcript.system else ""
    body = "\n".join(map(_html, transcript.entries))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        'img-src data:">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{title}</h1>\n<p>{facts}</p>\n</header>\n<main>\n{system}\n{body}\n</main>\n"
        "<footer><p>Exported by lmagent</p></footer>\n</body>\n</html>\n"
    )


def _html(entry: TranscriptEntry) -> str:
    text = f'<p class="text">{escape(entry.text)}</p>' if entry.text else ""
    match entry.kind:
        case "user":
            images = "".join(map(_image, entry.images))
            head = f'<p class="dim">{escape(entry.label or "User")}{_time(entry.ts)}</p>'
            return f'<section class="user">{head}{text}{images}</section>'
        case "assistant":
            return f'<section><p class="dim">Assistant{_time(entry.ts)}</p>{text}</section>'
        case "thinking":
            return _details("Thinking", entry.text)
        case "tool":
            mark = "" if entry.status == "ok" else f" — {entry.status}"
            body = f"<pre>{escape(entry.arguments)}</pre>" if entry.arguments else ""
            body += f"<pre>{escape(entry.text)}</pre>" if entry.text else ""
            style = "" if entry.status == "ok" else ' class="bad"'
            return f"<details><summary{style}>{escape(entry.label + mark)}</summary>{body}</details>"
        case "note":
            style = "dim bad" if entry.status == "error" else "dim"
            if len(entry.text) > 400:
                return _details(entry.label, entry.text)
            return f'<section class="{style}">{escape(entry.label)}{text}</section>'


def _details(label: str, text: str) -> str:
    return f"<details><summary>{escape(label)}</summary><pre>{escape(text)}</pre></details>"


def _image(image: tuple[str, str]) -> str:
    media_type, data = image
    if not _SAFE_IMAGE.fullmatch(media_type) or not _BASE64.fullmatch(data):
        return f'<p class="dim">(an image of type {escape(media_type)})</p>'
    return f'<img alt="attached image" src="data:{media_type};base64,{"".join(data.split())}">'


# --- both ----------------------------------------------------------------------------------------------------------


def _facts(transcript: Transcript) -> list[str]:
    facts = [f"Session {transcript.session}{_time(transcript.created)}"]
    if transcript.model:
        facts.append(f"Model {transcript.model}")
    if transcript.workspace:
        facts.append(f"Workspace {transcript.workspace}")
    tokens = f"{transcript.prompt_tokens:,} prompt and {transcript.completion_tokens:,} reply tokens"
    facts.append(f"{plural(transcript.turns, 'turn')}, {plural(transcript.steps, 'model call')}, {tokens}")
    return facts


def _time(ts: float) -> str:
    try:
        return f" · {datetime.fromtimestamp(ts, UTC):%Y-%m-%d %H:%M} UTC" if ts > 0 else ""
    except (ValueError, OSError, OverflowError):
        return ""
