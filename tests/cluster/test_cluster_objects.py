"""Large blobs of a cluster in object storage: a real server of S3 on loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from random import Random

import anyio
import anyio.to_thread
import pytest
from cluster_kit import Cluster, cluster, until
from testkit.objectserver import Bucket, ObjectServer, bucket, variables
from testkit.proxy import CutProxy

from lmagent.cluster import blobs
from lmagent.cluster.objects import ObjectStorage
from lmagent.cluster.store import ClusterStore
from lmagent.core.errors import ConfigError, StoreError
from lmagent.core.ports import EventStore, SessionLog
from lmagent.testing.conformance import EventStoreConformance
from lmagent.testing.conformance.store import OTHER, SESSION, opening, said

pytestmark = pytest.mark.anyio

BIG = b"0123456789abcdef" * 4096  # as small as an object can be
ROUNDS = int(os.environ.get("LMAGENT_ROUNDS", "20"))
THIRD = "20260103_000000_abc123"


@pytest.fixture(name="place")
def _bucket() -> Iterator[Bucket]:
    with bucket() as found:
        yield found


@pytest.fixture(name="known")
def _cluster(place: Bucket) -> Iterator[Cluster]:
    with cluster() as found:
        found.objects = place.address
        yield found


class TestClusterStoreWithObjects(EventStoreConformance):
    """The port's suite, with each blob in an object."""

    @pytest.fixture(autouse=True)
    def _objects(self, known: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(blobs, "LARGE", 0)
        self.cluster = known

    def make(self) -> EventStore:
        return self.cluster.store()

    def again(self, store: EventStore) -> EventStore:
        return self.cluster.store()


async def begin(store: ClusterStore, session: str = SESSION) -> SessionLog:
    log = store.create(session)
    await log.append(opening(session))
    return log


async def test_large_blobs_are_objects_and_small_ones_are_in_the_table(known: Cluster, place: Bucket) -> None:
    log = await begin(known.store())
    names = [await log.put_blob(content) for content in (BIG, BIG[1:])]
    mark = known.sql("SELECT mark FROM cluster")
    assert place.objects() == [f"some/where/{mark}/project/{names[0]}"]
    assert known.sql("SELECT size, content IS NULL, object IS NULL FROM blob ORDER BY size") == "65535|f|t\n65536|t|f"
    assert [log.get_blob(name[:12]) for name in names] == [BIG, BIG[1:]]


async def test_the_sessions_of_a_workspace_share_the_objects_of_the_same_content(known: Cluster, place: Bucket) -> None:
    store, other = known.store(), known.store("an other/one")
    log = await begin(store)
    name = await log.put_blob(BIG)
    await log.append(said(f"artifact:{name[:12]}"))
    assert await (await begin(store, OTHER)).put_blob(BIG) == name
    await store.fork(SESSION, THIRD)
    assert len(place.objects()) == 1
    assert await (await begin(other)).put_blob(BIG) == name
    assert len(place.objects()) == 2
    assert [store.get_blob(id, name) for id in (SESSION, OTHER, THIRD)] == [BIG] * 3
    assert other.get_blob(SESSION, name) == BIG


async def test_an_object_is_deleted_with_the_last_session_that_names_it_and_not_on_the_day_it_was_written(
    known: Cluster, place: Bucket
) -> None:
    store = known.store()
    log = await begin(store)
    name = await log.put_blob(BIG)
    await log.append(said(f"artifact:{name[:12]}"))
    log.close()
    await store.fork(SESSION, OTHER)
    age(known)
    store.delete(SESSION)
    store.prune()
    assert store.get_blob(OTHER, name) == BIG
    log = await begin(store, THIRD)
    await log.put_blob(BIG * 2)
    log.close()
    store.delete(OTHER)
    store.delete(THIRD)
    store.prune()
    assert [key[-64:] for key in place.objects()] == [sha256(BIG * 2).hexdigest()]
    age(known)
    store.prune()
    assert (place.objects(), known.sql("SELECT count(*) FROM object")) == ([], "0")


async def test_an_object_whose_row_was_never_written_is_deleted_after_a_day(known: Cluster, place: Bucket) -> None:
    store = known.store()
    log = await begin(store)
    known.sql("ALTER TABLE blob ADD CHECK (size < 0)")  # the writer ends after the object, and before the row
    with pytest.raises(StoreError, match="refused"):
        await log.put_blob(BIG)
    assert len(place.objects()) == 1
    store.prune()
    assert len(place.objects()) == 1
    age(known)
    store.prune()
    assert place.objects() == []


@pytest.fixture(name="stopping")
def _server_that_stops(known: Cluster) -> Iterator[ObjectServer]:
    """A server of this test's own, which the cluster uses, and which a test may stop and continue."""
    server = ObjectServer()
    try:
        with bucket(server) as place:
            known.objects = place.address
            yield server
    finally:
        server.stop()


async def orphan(known: Cluster) -> ClusterStore:
    """Leave an object that no blob names, older than a day; return the store of its writer."""
    store = known.store()
    log = await begin(store)
    await log.put_blob(BIG)
    log.close()
    store.delete(SESSION)
    age(known)
    return store


async def test_a_writer_waits_for_the_deletion_of_its_object_and_writes_it_again(
    known: Cluster, stopping: ObjectServer
) -> None:
    store, log = await orphan(known), await begin(known.store(), OTHER)
    stopping.process.send_signal(signal.SIGSTOP)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, store.prune)
        await until(lambda: known.sql(f"SELECT count(*) {ACTIVITY} state = 'idle in transaction'") == "1")
        tasks.start_soon(log.put_blob, BIG)
        await until(lambda: known.sql(f"SELECT count(*) {ACTIVITY} wait_event_type = 'Lock'") == "1")
        stopping.process.send_signal(signal.SIGCONT)
    assert log.get_blob(sha256(BIG).hexdigest()) == BIG


async def test_an_object_that_is_being_written_again_is_not_deleted(known: Cluster, stopping: ObjectServer) -> None:
    store, log = await orphan(known), await begin(known.store(), OTHER)
    stopping.process.send_signal(signal.SIGSTOP)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(log.put_blob, BIG)
        await until(lambda: known.sql(f"SELECT count(*) FROM object WHERE {YOUNG}") == "1")
        with anyio.fail_after(5):
            await anyio.to_thread.run_sync(store.prune)  # without asking the storage
        stopping.process.send_signal(signal.SIGCONT)
    assert log.get_blob(sha256(BIG).hexdigest()) == BIG


async def test_a_write_that_took_more_than_a_day_fails_if_its_object_was_deleted_meanwhile(
    known: Cluster, stopping: ObjectServer
) -> None:
    store, log = known.store(), await begin(known.store())
    stopping.process.send_signal(signal.SIGSTOP)
    async with anyio.create_task_group() as tasks:

        async def write() -> None:
            with pytest.raises(StoreError, match="refused"):
                await log.put_blob(BIG)

        tasks.start_soon(write)
        await until(lambda: known.sql(f"SELECT count(*) FROM object WHERE {YOUNG}") == "1")
        age(known)
        tasks.start_soon(anyio.to_thread.run_sync, store.prune)
        await until(lambda: known.sql(f"SELECT count(*) {ACTIVITY} state = 'idle in transaction'") == "1")
        stopping.process.send_signal(signal.SIGCONT)
    assert known.sql("SELECT count(*) FROM blob") == "0"


async def test_writers_deletions_and_prunes_at_random_leave_no_blob_without_its_object(known: Cluster) -> None:
    """Even if each write takes a day: a write may then fail, and no blob that was written is lost."""
    contents = [bytes([number]) * blobs.LARGE for number in range(3)]
    kept: dict[str, bytes] = {}
    ends = threading.Event()

    async def write(seed: int) -> None:
        random, store = Random(seed), known.store()
        for count in range(ROUNDS):
            session = f"20260101_{seed:06}_{count:06x}"
            log = await begin(store, session)
            content = random.choice(contents)
            with suppress(StoreError):
                await log.put_blob(content)
                kept[session] = content
            log.close()
            if random.random() < 0.7:
                kept.pop(session, None)
                await anyio.to_thread.run_sync(store.delete, session)

    def prune() -> None:
        store = known.store()
        while not ends.is_set():
            age(known)
            store.prune()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, prune)
        try:
            async with anyio.create_task_group() as writers:
                for seed in range(2):
                    writers.start_soon(write, seed)
        finally:
            ends.set()
    store = known.store()
    assert len(kept) > ROUNDS / 5
    for session, content in kept.items():
        assert store.get_blob(session, sha256(content).hexdigest()) == content


async def test_a_missing_and_a_damaged_object_are_named(known: Cluster, place: Bucket) -> None:
    log = await begin(known.store())
    name = await log.put_blob(BIG)
    (key,) = place.objects()
    place.write(key, b"other")
    with pytest.raises(StoreError, match=f"is damaged: its content in s3://{place.name}/{key} no longer"):
        log.get_blob(name)
    place.delete(key)
    with pytest.raises(StoreError, match=f"is missing: there is no object s3://{place.name}/{key}"):
        log.get_blob(name)
    assert await log.put_blob(BIG) == name  # writing it again mends it
    assert log.get_blob(name) == BIG


async def test_without_the_setting_an_object_is_not_read_and_blobs_are_in_the_table(known: Cluster) -> None:
    log = await begin(known.store())
    name = await log.put_blob(BIG)
    log.close()
    known.objects = ""
    store = known.store()
    with pytest.raises(StoreError, match="cluster_objects is not set"):
        store.get_blob(SESSION, name)
    log = store.open(SESSION)
    assert log.get_blob(await log.put_blob(BIG * 2)) == BIG * 2
    assert known.sql("SELECT size FROM blob WHERE object IS NULL") == str(len(BIG) * 2)
    log.close()
    store.delete(SESSION)


async def test_a_storage_that_comes_back_within_the_patience_takes_the_blob(
    known: Cluster, place: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    log = await begin(known.store())
    proxies: list[CutProxy] = []
    later = threading.Timer(1, lambda: proxies.append(CutProxy(place.server.port, port)))
    later.start()
    name = await log.put_blob(BIG)
    assert log.get_blob(name) == BIG
    later.join()
    proxies[0].close()


# --- what is said when it cannot be used ------------------------------------------------------------------------------


def test_a_storage_that_is_away_is_named_with_the_variable_of_its_address(place: Bucket) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
        away = ObjectStorage(place.address, patience=0.3)
    for work in (lambda: away.put("key", b""), lambda: away.get("key"), lambda: away.delete(["key"])):
        with pytest.raises(StoreError, match=f"{place.address} cannot be used") as refused:
            work()
        assert "AWS_ENDPOINT_URL" in refused.value.fix
        assert "\n" not in str(refused.value.message)


def test_a_bucket_that_does_not_exist_is_named(place: Bucket) -> None:
    nowhere = ObjectStorage("s3://no-such-bucket")
    for work in (lambda: nowhere.put("key", b""), lambda: nowhere.get("key"), lambda: nowhere.delete(["key"])):
        with pytest.raises(StoreError, match="s3://no-such-bucket has no such bucket") as refused:
            work()
        assert "make the bucket" in refused.value.fix


def test_keys_that_are_refused_are_an_error_that_does_not_show_them(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ObjectServer(strict=True)
    try:
        for variable, value in variables(server.port).items():
            monkeypatch.setenv(variable, value)
        with pytest.raises(StoreError, match="refused the keys: InvalidAccessKeyId") as refused:
            ObjectStorage("s3://bucket").put("key", b"")
        assert "AWS_SECRET_ACCESS_KEY" in refused.value.fix
        assert "very-secret" not in str(refused.value)
    finally:
        server.stop()


def test_without_keys_the_error_names_their_variables(place: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(StoreError, match="no keys are set") as refused:
        ObjectStorage(place.address, patience=0.3).put("key", b"")
    assert "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in refused.value.fix


@pytest.mark.parametrize("address", ["bucket", "s3://", "https://host/bucket", "s3://b", "s3://buck et/prefix"])
def test_an_address_that_is_none_is_an_error_of_the_settings(address: str) -> None:
    with pytest.raises(ConfigError, match="cluster_objects cannot be read") as refused:
        ObjectStorage(address)
    assert refused.value.fix == "s3://bucket/prefix"


def test_without_the_setting_the_library_is_not_loaded(known: Cluster) -> None:
    code = (
        "import sys; from pathlib import Path; from lmagent.cluster import open_store\n"
        "from lmagent.app.clock import SystemClock; from lmagent.config.settings import Settings\n"
        "open_store(Path(), Settings(cluster_url=sys.argv[1], cluster_workspace='w'), SystemClock()).sessions()\n"
        "sys.exit('obstore' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, known.url], check=True)


def test_the_doctor_writes_reads_and_deletes_an_object_and_names_a_missing_bucket(
    known: Cluster, place: Bucket, tmp_path: Path
) -> None:
    def doctor(address: str) -> dict[str, dict[str, str]]:
        env = os.environ | {"HOME": str(tmp_path), "LMAGENT_CLUSTER_URL": known.url, "LMAGENT_CLUSTER_OBJECTS": address}
        command = [sys.executable, "-m", "lmagent", "cluster", "doctor", "--json"]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
        return {one["name"]: one for one in map(json.loads, done.stdout.splitlines())}

    found = doctor(place.address)
    assert found["objects"]["state"] == found["schema"]["state"] == "ok"
    assert f"{place.address}: an object written, read and deleted" in found["objects"]["text"]
    assert place.objects() == []
    found = doctor("s3://no-such-bucket")
    assert (found["objects"]["state"], found["schema"]["state"]) == ("fault", "ok")
    assert "make the bucket" in found["objects"]["fix"]
    assert "cannot be read" in doctor("nowhere")["objects"]["text"]


YOUNG = "wanted > clock_timestamp() - interval '1 hour'"
ACTIVITY = "FROM pg_stat_activity WHERE datname = current_database() AND"


def age(known: Cluster) -> None:
    known.sql("UPDATE object SET wanted = wanted - interval '25 hours'")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
