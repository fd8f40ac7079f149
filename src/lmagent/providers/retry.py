"""Retry: whether a failed model call is tried again, and when. A pure decision; the caller waits."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from lmagent.core.errors import ProviderError, Unreachable


class RetryPolicy(Struct, frozen=True):
    """Number of tries and delays.

    Attributes:
        tries: tries in all, the first included (`LLM_MAX_RETRIES`).
        delay: seconds before the second try; doubled for each further one (`LLM_RETRY_DELAY`).
        longest: seconds; a longer wait that a server asks for is reported instead.
        local_delay: seconds before the second and last try if no server listens on this machine.
    """

    tries: int = 3
    delay: float = 3.0
    longest: float = 120.0
    local_delay: float = 0.25


def next_delay(
    policy: RetryPolicy,
    failure: ProviderError,
    attempt: int,
    *,
    local: bool,
    random: Callable[[], float],
) -> float | None:
    """Return the seconds until the next try, or None if the failure is final.

    Args:
        failure: retried only if it is retryable, and never once a part of the reply has been shown.
        attempt: number of the try that failed, from 1.
        local: the server is on this machine: if it does not listen now, it will not in a few seconds either.
        random: 0 to 1; spreads the tries of many clients over -25 % to +25 % of the delay.
    """
    if not failure.retryable or failure.partial or attempt >= policy.tries:
        return None
    if failure.retry_after is not None:
        wait = failure.retry_after * (1 + random() / 10)  # never earlier than the server asks
        return wait if wait <= policy.longest else None
    if local and isinstance(failure, Unreachable):
        return policy.local_delay if attempt < 2 else None
    return min(policy.longest, policy.delay * 2 ** (attempt - 1)) * (0.75 + random() / 2)
