"""Object storage: a bucket that is reached by the protocol of S3, and errors that say what to check.

Only `cluster_objects` imports this module, which loads the library.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import timedelta

from lmagent.core.errors import ConfigError, StoreError

try:
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
    from obstore.store import S3Store
except ImportError as missing:
    raise ConfigError(
        "cluster_objects is set, and the library for object storage is missing",
        fix="pip install 'lmagent-local[cluster]', or unset cluster_objects",
    ) from missing

PATIENCE = 30.0  # seconds for which a storage that is away is waited for, as long as for a database
LONGEST = timedelta(seconds=60)  # of one request: the largest blob at 4.5 MB/s

_ADDRESS = re.compile(r"s3://([A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9])(?:/(.*))?")
_ANSWER = re.compile(r"<Code>([^<]*)</Code>(?:.*?<Message>([^<]*)</Message>)?", re.DOTALL)
_FAILED = (BaseError, ValueError, FileNotFoundError)


class ObjectStorage:
    """Objects of a cluster, under an address such as `s3://bucket/prefix`.

    The variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL say the rest.

    Args:
        patience: seconds for which a storage that is away is waited for.

    Raises ConfigError: the address or a variable cannot be read.
    """

    def __init__(self, address: str, *, patience: float = PATIENCE) -> None:
        found = _ADDRESS.fullmatch(address)
        if found is None:
            raise ConfigError(f"cluster_objects cannot be read: {address!r}", fix="s3://bucket/prefix")
        self.address = address.rstrip("/")
        try:
            self._store = S3Store(
                found[1],
                prefix=(found[2] or "").strip("/") or None,
                client_options={"allow_http": True, "connect_timeout": timedelta(seconds=5), "timeout": LONGEST},
                retry_config={
                    "max_retries": 1000,
                    "retry_timeout": timedelta(seconds=patience),
                    "backoff": {
                        "init_backoff": timedelta(milliseconds=100),
                        "max_backoff": timedelta(seconds=1),
                        "base": 2,
                    },
                },
            )
        except _FAILED as wrong:
            raise ConfigError(
                f"cluster_objects cannot be used: {_reason(wrong)}",
                fix="correct cluster_objects and the AWS_ variables",
            ) from wrong

    def name(self, key: str) -> str:
        """Return the whole address of an object."""
        return f"{self.address}/{key}"

    def put(self, key: str, content: bytes) -> None:
        """Write an object, or replace it. Raise StoreError."""
        try:
            self._store.put(key, content, use_multipart=False)
        except _FAILED as failed:
            raise self._refused(failed) from failed

    def get(self, key: str) -> bytes | None:
        """Return the content of an object; None if it does not exist. Raise StoreError."""
        try:
            return bytes(self._store.get(key).bytes())
        except _FAILED as failed:
            if isinstance(failed, FileNotFoundError) and "NoSuchBucket" not in str(failed):
                return None
            raise self._refused(failed) from failed

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, and ignore those that do not exist. Raise StoreError."""
        try:
            self._store.delete(keys)
        except _FAILED as failed:
            raise self._refused(failed) from failed

    def _refused(self, failed: Exception) -> StoreError:
        reason = _reason(failed)
        what, fix = f"cannot be used: {reason}", "start it, or correct AWS_ENDPOINT_URL and AWS_REGION"
        if isinstance(failed, FileNotFoundError):
            what = f"has no such bucket ({reason})"
            fix = "make the bucket, or correct cluster_objects and AWS_ENDPOINT_URL"
        elif isinstance(failed, PermissionDeniedError | UnauthenticatedError):
            what, keys = f"refused the keys: {reason}", "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION"
            fix = f"correct {keys}, and let their user read, write and delete in the bucket"
        elif not os.environ.get("AWS_ACCESS_KEY_ID"):
            what = f"cannot be used: no keys are set, and this machine has no role that brings them ({reason})"
            fix = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        return StoreError(f"the object storage {self.address} {what}", fix=f"{fix}: lmagent cluster doctor")


def _reason(failed: Exception) -> str:
    """Return the storage's answer, or the library's first line."""
    text = str(failed)
    if answer := _ANSWER.search(text):
        return ": ".join(part.strip() for part in answer.groups() if part)
    lines = text.strip().splitlines() or [type(failed).__name__]
    return lines[0].strip()
