"""Delivers the result of a cron job: runs a command in the sandbox, or posts to a webhook.

`cron.json` lies in the workspace, which may come from a stranger. So a command needs a folder that the user trusts, and
still runs in the sandbox; a webhook needs its host among those that the user lets commands reach.
"""

from __future__ import annotations

from collections.abc import Awaitable
from urllib.parse import urlsplit

import anyio
import msgspec
from msgspec import Struct

from lmagent.core.errors import ConfigError, LmagentError
from lmagent.core.sandbox import Exec
from lmagent.providers.transport import Timeouts, TransportError
from lmagent.sandbox.hosts import parse_pattern, parse_target
from lmagent.schedule.jobs import CronJob
from lmagent.schedule.port import JobHost

COMMAND_SECONDS = 300.0  # how long a command may take
ANSWER_BYTES = 32_768  # bytes of the answer in the command's variable

# Attempts to reach a webhook; seconds before the second one (doubled for the third); seconds for each.
TRIES, PAUSE, PATIENCE = 3, 1.0, 30.0


class DeliveredResult(Struct, frozen=True):
    """The result to deliver; a webhook gets it as JSON."""

    job: str
    run: str
    scheduled: int
    session: str
    outcome: str
    reason: str
    answer: str


async def deliver(host: JobHost, job: CronJob, result: DeliveredResult, *, again: bool) -> str:
    """Deliver a result; return the outcome as text, the first failure if there is one.

    If an earlier process died during the delivery, a webhook is called `again`, with the same `Idempotency-Key`; a
    command is not, since it may have run.
    """
    said: list[str] = []
    if job.webhook:
        said.append(await _guarded(_post(host, job.webhook, result)))
    if job.command:
        done = "not repeated: it may have run before the scheduler was killed"
        said.append(done if again else await _guarded(_run(host, job.command, result)))
    return next((word for word in said if word != "ok"), "ok")


async def _guarded(work: Awaitable[str]) -> str:
    try:
        return await work
    except LmagentError as error:
        return f"failed: {error.message}"


async def _run(host: JobHost, command: str, result: DeliveredResult) -> str:
    sandbox = await host.sandbox()
    env = {f"LMAGENT_{name.upper()}": _plain(str(value)) for name, value in msgspec.to_builtins(result).items()}
    output = bytearray()
    running = await sandbox.start(
        Exec(("sh", "-c", command), env=env, timeout=COMMAND_SECONDS, hosts=host.settings.sandbox_hosts, merge=True),
        lambda _, piece: output.extend(piece[: max(0, 2000 - len(output))]),
    )
    end = await running.wait()
    if end.reason == "exit" and end.code == 0:
        return "ok"
    how = f"exit code {end.code}" if end.reason == "exit" else end.reason
    return f"failed: the command ended with {how}: {output.decode('utf-8', 'replace').strip()[-300:]}"


def _plain(text: str) -> str:
    return text.replace("\0", "").encode("utf-8", "replace")[:ANSWER_BYTES].decode("utf-8", "ignore")


async def _post(host: JobHost, url: str, result: DeliveredResult) -> str:
    _require_reachable(host, url)
    headers = {"Content-Type": "application/json", "Idempotency-Key": result.run, "User-Agent": "lmagent"}
    limits, body = Timeouts(connect=PATIENCE, first_byte=PATIENCE, idle=PATIENCE), msgspec.json.encode(result)
    why = ""
    for attempt in range(TRIES):
        if attempt:
            await host.clock.sleep(PAUSE * 2 ** (attempt - 1))
        try:
            with anyio.fail_after(PATIENCE):
                response = await host.transport.send("POST", url, headers, body, limits)
                await response.aclose()  # the status suffices, and the body may never end
        except TimeoutError:
            why = f"no answer within {PATIENCE:g} s"
            continue
        except TransportError as error:
            why = f"{error.kind} {error.detail}".strip()
            continue
        if response.status < 300:
            return "ok"
        why = f"HTTP {response.status}"
        if response.status < 500 and response.status not in (408, 425, 429):
            break
    return f"failed: the webhook was not reached: {why}"


def _require_reachable(host: JobHost, url: str) -> None:
    """Raise ConfigError for an address that is not among the hosts that commands may reach."""
    try:
        parts = urlsplit(url)
        place = parts.netloc.rpartition("@")[2]
        target = parse_target(place, 443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise ConfigError(f"the webhook's address is wrong: {error}") from None
    if not any(parse_pattern(text).matches(target) for text in host.settings.sandbox_hosts):
        raise ConfigError(f"the webhook was not called: {target} is not allowed (sandbox_hosts, --allow-host {target})")
