"""Browser: a page as its scripts have made it. The machine's Chromium prints it, as a command in a sandbox.

The sandbox has an empty folder, and its only way out is its proxy. The page's own site passes: its host, and names
below. Every other host that is not listed is refused without a question, since a page of news asks for forty; the
result says which. Deny rules hold for all of them. The browser's own calls are switched off, and would meet the same
proxy.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from lmagent.core.errors import ToolError
from lmagent.core.sandbox import Exec, Exit, Sandbox, Stream
from lmagent.sandbox.hosts import Target
from lmagent.tools.beneath import Beneath
from lmagent.tools.sanitize import one_line
from lmagent.web.links import WebLink
from lmagent.web.tools import Browser

LARGEST = 10 << 20
"""Bytes of a page that are read."""

START = 20.0
"""Seconds for the browser's start and end on a slow machine, besides the time for the page."""

NAMED = 6
"""Refused hosts that a result names."""

_LAST = 64 << 10  # bytes of the browser's messages that are kept

_OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--mute-audio"),
    *("--user-data-dir=/tmp/profile", "--disable-extensions", "--no-first-run", "--no-default-browser-check"),
    *("--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-sync"),
    *("--disable-domain-reliability", "--disable-client-side-phishing-detection", "--disable-breakpad", "--no-pings"),
    "--disable-features=OptimizationHints,MediaRouter,Translate,AutofillServerCommunication,CertificateTransparency",
    *("--proxy-server=http://127.0.0.1:3128", "--proxy-bypass-list=<-loopback>"),
    *("--force-webrtc-ip-handling-policy=disable_non_proxied_udp", "--disable-quic"),
    *("--window-size=1280,1600", "--dump-dom"),
)
"""Chromium's own sandbox cannot be made inside ours, which confines all of it."""

_WITHOUT_PICTURES = "--blink-settings=imagesEnabled=false"

_PICTURE = "page.png"

_NET_ERROR = re.compile(rb"handshake failed.{0,80}net_error (-\d+)")
_CERTIFICATES = {
    b"-200": "its certificate is for another name",
    b"-201": "its certificate is not valid at this date",
    b"-202": "its certificate is from an authority that is not trusted",
}
_FRAME = re.compile(rb'<i?frame\b[^>]{0,2000}?\ssrc="(?!about:|javascript:|data:)[^"]')
_BLOCKED = re.compile(rb"<pre[^>]*>Blocked by lmagent: ([^<\n]{1,300})")


class Rendered(Struct):
    """A page that the browser printed, and the hosts that it asked for and did not reach; a picture, if asked for."""

    html: bytes = b""
    picture: bytes = b""
    cut: bool = False
    messages: bytes = b""
    refused: dict[str, None] = field(default_factory=dict[str, None])

    @property
    def frames(self) -> int:
        """The number of frames, whose pages are not part of it."""
        return len(_FRAME.findall(self.html))


def site_of(target: Target) -> tuple[str, ...]:
    """Return the patterns of a page's own site. A private host is reached only if it is listed."""
    if target.address or "." not in target.host:
        return ()
    port = "" if target.port in (80, 443) else f":{target.port}"
    base = target.host.removeprefix("www.")
    names = dict.fromkeys((target.host, base, *((f"*.{base}",) if "." in base else ())))
    return tuple(f"{name}{port}" for name in names)


async def render(
    browser: Browser,
    link: WebLink,
    seconds: int,
    listed: Sequence[str],
    barred: Callable[[str, int], bool],
    *,
    picture: bool = False,
) -> Rendered:
    """Return a page after its scripts have had so many seconds. Raise ToolError if it cannot be had.

    `listed` are hosts that it may reach besides its own site; a `barred` host it may not, listed or not.
    """
    rendered = Rendered()

    async def refuse(host: str, port: int) -> bool:
        rendered.refused[str(Target(host, port)).removesuffix(":443").removesuffix(":80")] = None
        return False

    def note(host: str, port: int) -> bool:
        if is_barred := barred(host, port):
            rendered.refused[f"{host} (a rule forbids it)"] = None
        return is_barred

    with tempfile.TemporaryDirectory(prefix="lmagent-web-") as folder:
        program = Path(browser.program).resolve()
        visible = () if program.is_relative_to("/usr") else (program.parent,)
        sandbox = await browser.sandbox(Path(folder).resolve(), visible)
        shown = f"--screenshot={Path(folder).resolve() / _PICTURE}" if picture else _WITHOUT_PICTURES
        command = Exec(
            (browser.program, *_OPTIONS, shown, f"--virtual-time-budget={seconds * 1000}", str(link)),
            timeout=seconds + START,
            hosts=(*site_of(link.target), *listed),
            decide=refuse,
            barred=note,
        )
        end = await _run(sandbox, command, rendered)
        _check(link, rendered, end)
        if picture:
            with Beneath(Path(folder).resolve()) as files:  # whatever ran in the sandbox may have left a link
                rendered.picture = files.read_bytes(_PICTURE, LARGEST + 1)
    return rendered


async def _run(sandbox: Sandbox, command: Exec, rendered: Rendered) -> Exit:
    def take(stream: Stream, piece: bytes) -> None:
        if stream == "stderr":
            rendered.messages = (rendered.messages + piece)[-_LAST:]
            return
        room = LARGEST - len(rendered.html)
        rendered.html += piece[:room]
        if len(piece) > room:
            rendered.cut = True

    running = await sandbox.start(command, take)
    return await running.wait()


def _check(link: WebLink, rendered: Rendered, end: Exit) -> None:
    """Raise ToolError if there is no page to read."""
    if end.reason == "timeout":
        raise _failed(
            f"{link} did not come to an end: a script runs on, waits for a dialog, or a request stays open. "
            "web_fetch reads it without scripts",
            "timeout",
        )
    if end.reason != "exit":
        raise _failed(f"{link} takes more memory than the sandbox allows", "memory")
    if blocked := _BLOCKED.search(rendered.html[:2000]):
        raise _failed(f"{link} leads elsewhere: {one_line(blocked[1].decode(errors='replace'))}", "denied")
    if re.search(rb"<body[^>]*>\s*\S", rendered.html.replace(b"<body></body>", b"")):
        return
    if fault := _NET_ERROR.search(rendered.messages):
        why = _CERTIFICATES.get(fault[1], f"TLS error {fault[1].decode()}")
        raise _failed(f"No safe connection to {link.host}: {why}", "tls")
    if rendered.refused:
        raise _failed(f"{link} shows nothing without {named(rendered.refused)}, which it may not reach", "denied")
    if not rendered.html.strip():
        last = rendered.messages.decode(errors="replace").strip().rpartition("\n")[2]
        raise _failed(f"The browser ended with {end.code} and without a page: {one_line(last)}", "browser")
    raise _failed(
        f"{link} is an empty page, a download, too large for the browser, or not reachable. web_fetch says more",
        "empty",
    )


def named(refused: Mapping[str, None]) -> str:
    """Return hosts in words."""
    shown = ", ".join(one_line(host) for host in list(refused)[:NAMED])
    return shown if len(refused) <= NAMED else f"{shown} and {len(refused) - NAMED} more"


def _failed(text: str, code: str) -> ToolError:
    return ToolError(f"{text}.", data={"code": code})
