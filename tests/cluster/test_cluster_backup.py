"""The database of a cluster, dumped while a session is open, and restored elsewhere, as docs/cluster.md says."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from cluster_kit import Cluster, cluster
from testkit.postgres import database, programs

from lmagent.core.errors import SessionBusy
from lmagent.testing.conformance.store import SESSION, opening, said

pytestmark = pytest.mark.anyio


def call(program: str, *arguments: str) -> None:
    folder = programs()
    assert folder is not None
    subprocess.run([str(folder / program), *arguments], check=True, capture_output=True)


async def test_a_dump_of_the_database_restores_sessions_blobs_and_the_right_to_write(tmp_path: Path) -> None:
    dump = tmp_path / "lmagent.dump"
    with cluster() as known:
        log = known.store().create(SESSION)
        await log.append(opening(SESSION))
        await log.append(said("before the dump"))
        blob = await log.put_blob(b"a large result")
        call("pg_dump", "-Fc", "-f", str(dump), known.url)
        await log.append(said("after the dump"))
        with database(schema=False) as url, ExitStack() as stack:
            call("pg_restore", "--no-owner", "-d", url, str(dump))
            restored = Cluster(url, stack)
            store = restored.store()
            assert [event.seq for event in store.read(SESSION)] == [1, 2]
            assert store.get_blob(SESSION, blob) == b"a large result"
            with pytest.raises(SessionBusy):
                store.open(SESSION)
            restored.age()
            await store.open(SESSION).append(said("after the restore"))
            assert [event.seq for event in restored.store().read(SESSION)] == [1, 2, 3]
