"""Pulling a model: from a hub on loopback, through everything that breaks on the way."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from fakehub import REPO, FakeHub

from lmagent.modelserver.library.download import Ports
from lmagent.modelserver.library.hub import ModelHub
from lmagent.modelserver.library.pull import PulledModel, Puller
from lmagent.modelserver.spec import ModelServerError
from lmagent.providers.transport import HttpTransport

CONTENT = random.Random(1).randbytes(400_000)
FILE = "Model-Q4_K_M.gguf"


@dataclass
class Seen:
    """A progress that keeps what it is told, and how long it was to wait."""

    begun: list[tuple[str, int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    count: int = 0

    def begin(self, name: str, size: int, have: int) -> None:
        self.begun.append((name, size, have))

    def advance(self, count: int) -> None:
        self.count += count

    def note(self, text: str) -> None:
        self.notes.append(text)

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


def pull(
    hub: FakeHub | dict[str, str], folder: Path, name: str = REPO, seen: Seen | None = None, **more
) -> PulledModel:
    seen = seen or Seen()
    env = hub if isinstance(hub, dict) else hub.env
    options = {key: more.pop(key) for key in ("free",) if key in more}
    ports = Ports(seen, seen.pause, **{key: more.pop(key) for key in ("write",) if key in more})

    async def main() -> PulledModel:
        transport = HttpTransport(env)
        try:
            return await Puller(ModelHub(transport, env), folder, ports, **options).pull(name, **more)
        finally:
            await transport.aclose()

    return anyio.run(main)


def refused(hub: FakeHub | dict[str, str], folder: Path, name: str = REPO, **more) -> ModelServerError:
    with pytest.raises(ModelServerError) as error:
        pull(hub, folder, name, **more)
    assert error.value.fix
    return error.value


def left(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


HOME = "owner/Model-GGUF"


def test_a_model_is_fetched_checked_and_named(tmp_path):
    with FakeHub({FILE: CONTENT, "README.md": b"hello"}, small=["README.md"]) as hub:
        seen = Seen()
        pulled = pull(hub, tmp_path, seen=seen)
    assert pulled.paths == (tmp_path / HOME / FILE,)
    assert pulled.paths[0].read_bytes() == CONTENT
    assert (pulled.fetched, seen.begun, seen.count) == (True, [(FILE, 400_000, 0)], 400_000)
    assert left(tmp_path / HOME) == [FILE]


def test_the_token_goes_to_the_hub_and_never_to_the_store(tmp_path):
    with FakeHub({FILE: CONTENT}) as hub:
        pull(hub, tmp_path)
        assert [request.headers["authorization"] for request in hub.hub.requests] == ["Bearer hf_secret"] * 2
        assert hub.store.requests
        assert not any("authorization" in request.headers for request in hub.store.requests)


def test_what_is_there_is_not_fetched_again(tmp_path):
    with FakeHub({FILE: CONTENT}) as hub:
        pull(hub, tmp_path)
        assert pull(hub, tmp_path).fetched is False
        assert len(hub.store.requests) == 1


def test_a_connection_that_breaks_off_is_taken_up_where_it_broke(tmp_path):
    with FakeHub({FILE: CONTENT}, cuts=[100_000, 250_000]) as hub:
        seen = Seen()
        pulled = pull(hub, tmp_path, seen=seen)
        assert hub.ranges_asked == ["", "bytes=114688-", "bytes=262144-"]
    assert pulled.paths[0].read_bytes() == CONTENT
    assert seen.count == 400_000
    assert len(seen.pauses) == 2


def test_a_later_pull_goes_on_with_the_part_that_an_earlier_one_left(tmp_path):
    with FakeHub({FILE: CONTENT}, cuts=[100_000] * 9) as hub:
        error = refused(hub, tmp_path)
        assert "kept" in error.message
        assert "continues where it stopped" in error.fix
        part = tmp_path / HOME / (FILE + ".part")
        assert part.read_bytes() == CONTENT[:114_688]
        hub.cuts = []
        hub.store.requests.clear()
        seen = Seen()
        pulled = pull(hub, tmp_path, seen=seen)
        assert hub.ranges_asked == ["bytes=114688-"]
    assert pulled.paths[0].read_bytes() == CONTENT
    assert seen.begun == [(FILE, 400_000, 114_688)]
    assert left(tmp_path / HOME) == [FILE]


@pytest.mark.parametrize(
    ("change", "why"),
    [({"ranges": False}, "beginning anew")],
)
def test_a_part_that_cannot_be_gone_on_with_is_begun_anew(tmp_path, change, why):
    with FakeHub({FILE: CONTENT}, cuts=[100_000] * 9) as hub:
        refused(hub, tmp_path)
        hub.cuts = []
        for name, value in change.items():
            setattr(hub, name, value)
        seen = Seen()
        assert pull(hub, tmp_path, seen=seen).paths[0].read_bytes() == CONTENT
    assert any(why in note for note in seen.notes)
    assert seen.begun[-1] == (FILE, 400_000, 0)


def test_a_part_of_another_file_is_thrown_away(tmp_path):
    with FakeHub({FILE: CONTENT}, cuts=[100_000] * 9) as hub:
        refused(hub, tmp_path)
        hub.cuts = []
        hub.files = {FILE: CONTENT[::-1]}
        hub.store.requests.clear()
        assert pull(hub, tmp_path).paths[0].read_bytes() == CONTENT[::-1]
        assert hub.ranges_asked == [""]


def test_a_part_whose_bytes_were_changed_is_found_out_by_the_checksum(tmp_path):
    with FakeHub({FILE: CONTENT}, cuts=[100_000] * 9) as hub:
        refused(hub, tmp_path)
        hub.cuts = []
        part = tmp_path / HOME / (FILE + ".part")
        part.write_bytes(b"x" + part.read_bytes()[1:])
        error = refused(hub, tmp_path)
    assert error.code == "wrong_checksum"
    assert left(tmp_path) == []


def test_a_part_that_is_whole_needs_only_its_name(tmp_path):
    with FakeHub({FILE: CONTENT}, cuts=[100_000] * 9) as hub:
        refused(hub, tmp_path)
        (tmp_path / HOME / (FILE + ".part")).write_bytes(CONTENT)
        hub.store.requests.clear()
        assert pull(hub, tmp_path).paths[0].read_bytes() == CONTENT
        assert hub.store.requests == []


def test_a_wrong_checksum_removes_the_file_and_says_so(tmp_path):
    with FakeHub({FILE: CONTENT}, wrong=True) as hub:
        error = refused(hub, tmp_path)
    assert "checksum" in error.message
    assert "removed" in error.message
    assert left(tmp_path) == []


def test_a_small_file_is_checked_by_the_hash_that_git_has_of_it(tmp_path):
    with FakeHub({FILE: CONTENT}, small=[FILE]) as hub:
        pull(hub, tmp_path)
        hub.wrong = True
        (tmp_path / HOME / FILE).unlink()
        assert refused(hub, tmp_path).code == "wrong_checksum"


def test_more_bytes_than_announced_are_refused(tmp_path):
    with FakeHub({FILE: CONTENT}, append=b"more") as hub:
        assert "more than" in refused(hub, tmp_path).message
    assert left(tmp_path) == []


def test_all_parts_of_a_model_are_fetched_and_the_list_is_read_page_by_page(tmp_path):
    parts = {f"Q8_0/Model-Q8_0-{number:05}-of-00003.gguf": CONTENT[: number * 1000] for number in (1, 2, 3)}
    with FakeHub(parts, pages=2) as hub:
        pulled = pull(hub, tmp_path)
    assert [path.name for path in pulled.paths] == [path.rpartition("/")[2] for path in parts]
    assert [path.read_bytes() for path in pulled.paths] == list(parts.values())


def test_a_projector_is_named_and_fetched_only_when_asked_for(tmp_path):
    with FakeHub({FILE: CONTENT, "mmproj-Model-F32.gguf": b"32", "mmproj-Model-F16.gguf": b"16"}) as hub:
        pulled = pull(hub, tmp_path)
        assert [file.name for file in pulled.choice.projectors] == ["mmproj-Model-F16.gguf", "mmproj-Model-F32.gguf"]
        assert left(tmp_path / HOME) == [FILE]
        pulled = pull(hub, tmp_path, with_mmproj=True)
        assert left(tmp_path / HOME) == [FILE, "mmproj-Model-F16.gguf"]
    with FakeHub({FILE: CONTENT}) as hub:
        assert "no projector" in refused(hub, tmp_path / "b", with_mmproj=True).message


@pytest.mark.parametrize(
    ("answer", "words", "fix"),
    [
        ((401, {"X-Error-Code": "RepoNotFound"}, b""), "is not on", "check the name"),
        ((404, {}, b""), "is not on", "check the name"),
        ((401, {}, b""), "is not on", "HF_TOKEN"),
        ((401, {"X-Error-Code": "GatedRepo"}, b""), "agreed to its terms", "agree"),
        ((403, {}, b""), "agreed to its terms", "agree"),
        ((429, {"Retry-After": "120"}, b""), "HTTP 429", "in 120 seconds"),
        ((500, {}, b'{"error": "oops"}'), "HTTP 500: oops", "later"),
        ((418, {}, b""), "HTTP 418", "HF_ENDPOINT"),
        ((200, {}, b"<html>"), "no list of files", "HF_ENDPOINT"),
        ((200, {}, b'[{"type": "file", "path": "a.gguf", "size": -1}]'), "no list of files", "HF_ENDPOINT"),
        ((302, {"Location": "ftp://x/y"}, b""), "redirects to", "HF_ENDPOINT"),
        ((302, {"Location": ""}, b""), "without end", "HF_ENDPOINT"),
    ],
)
def test_what_the_hub_refuses_is_explained(tmp_path, answer, words, fix):
    with FakeHub({FILE: CONTENT}, refuse=answer) as hub:
        error = refused(hub, tmp_path / "models")
    assert words in error.message
    assert fix in error.fix
    assert "hf_secret" not in str(error)
    assert not (tmp_path / "models").exists()


def test_a_hub_that_is_busy_is_waited_for_as_long_as_it_asks(tmp_path):
    with FakeHub({FILE: CONTENT}, refuse_files=[(429, {"Retry-After": "7"}, b""), (503, {}, b"")]) as hub:
        seen = Seen()
        assert pull(hub, tmp_path, seen=seen).fetched
    assert seen.pauses[0] == 7


def test_a_hub_that_asks_for_too_much_patience_is_not_waited_for(tmp_path):
    with FakeHub({FILE: CONTENT}, refuse_files=[(429, {"Retry-After": "3600"}, b"")]) as hub:
        assert "3600 seconds" in refused(hub, tmp_path).fix
    assert left(tmp_path) == []


def test_without_internet_one_line_says_so_and_nothing_is_left(tmp_path):
    with FakeHub({}) as hub:
        env = hub.env
    error = refused(env, tmp_path / "models")
    assert "cannot be reached" in error.message
    assert "\n" not in error.message
    assert not (tmp_path / "models").exists()


def test_a_disk_without_room_is_noticed_before(tmp_path):
    with FakeHub({FILE: CONTENT}) as hub:
        error = refused(hub, tmp_path / "models", free=lambda _: 1000)
        assert hub.store.requests == []
    assert error.code == "disk_full"
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    "path", ["..\\evil.gguf", "a/../../evil.gguf", "/evil.gguf", "sub/.hidden.gguf", "con:x.gguf", "x\x1b[2J.gguf"]
)
def test_names_that_lead_elsewhere_are_refused(tmp_path, path):
    with FakeHub({path: CONTENT}) as hub:
        assert "odd name" in refused(hub, tmp_path / "models").message
    assert not (tmp_path / "models").exists()
    assert not list(tmp_path.glob("**/*evil*"))


CHILD = textwrap.dedent("""\
    import os, resource, sys
    from pathlib import Path
    import anyio
    from lmagent.modelserver.library.download import Ports
    from lmagent.modelserver.library.hub import ModelHub
    from lmagent.modelserver.library.pull import Puller
    from lmagent.providers.transport import HttpTransport

    class Progress:
        def begin(self, name, size, have): print("begin", have, flush=True)
        def advance(self, count): print("more", count, flush=True)
        def note(self, text): pass

    async def main():
        transport = HttpTransport()
        try:
            await Puller(ModelHub(transport, os.environ), Path(sys.argv[1]), Ports(Progress())).pull(sys.argv[2])
        finally:
            await transport.aclose()

    if len(sys.argv) > 3:
        sys.dont_write_bytecode = True  # a module file would be cut too, and be loaded by every other test
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
    try:
        anyio.run(main)
    except Exception as error:
        print(type(error).__name__, error)
    except KeyboardInterrupt:
        print("interrupted")
""")


def child(hub: FakeHub, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments], stdout=subprocess.PIPE, text=True, env={**os.environ, **hub.env}
    )


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such limits on Windows")
def test_a_disk_that_fills_up_in_the_middle_keeps_a_part_that_can_be_gone_on_with(tmp_path):
    with FakeHub({FILE: CONTENT}) as hub:
        with child(hub, str(tmp_path), REPO, "150000") as process:
            said = process.communicate()[0]
        assert "cannot be written" in said
        assert "continues where it stopped" in said
        part = (tmp_path / HOME / (FILE + ".part")).read_bytes()
        assert 0 < len(part) <= 150_000
        assert part == CONTENT[: len(part)]
        hub.store.requests.clear()
        assert pull(hub, tmp_path).paths[0].read_bytes() == CONTENT
        assert hub.ranges_asked == [f"bytes={len(part)}-"]


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT is another thing on Windows")
def test_an_interrupt_keeps_the_part(tmp_path):
    with FakeHub({FILE: CONTENT}, slow=0.2) as hub:
        with child(hub, str(tmp_path), REPO) as process:
            assert process.stdout is not None
            while not process.stdout.readline().startswith("more"):
                pass
            process.send_signal(signal.SIGINT)
            assert "interrupted" in process.communicate()[0]
        part = (tmp_path / HOME / (FILE + ".part")).read_bytes()
        assert part
        assert part == CONTENT[: len(part)]
        assert left(tmp_path / HOME) == [FILE + ".part", FILE + ".part.json"]
        hub.slow = 0
        assert pull(hub, tmp_path).paths[0].read_bytes() == CONTENT


def test_two_pulls_of_one_file_exclude_each_other(tmp_path):
    with FakeHub({FILE: CONTENT}, slow=0.2) as hub:
        with child(hub, str(tmp_path), REPO) as process:
            assert process.stdout is not None
            while not process.stdout.readline().startswith("more"):
                pass
            error = refused(hub, tmp_path)
            process.communicate()
        assert error.code == "busy"
        assert (tmp_path / HOME / FILE).read_bytes() == CONTENT


def test_a_process_that_was_killed_is_in_nobodys_way(tmp_path):
    with FakeHub({FILE: CONTENT}, slow=0.2) as hub:
        with child(hub, str(tmp_path), REPO) as process:
            assert process.stdout is not None
            while not process.stdout.readline().startswith("more"):
                pass
            process.kill()
        hub.slow = 0
        pulled = pull(hub, tmp_path)
    assert hashlib.sha256(pulled.paths[0].read_bytes()).digest() == hashlib.sha256(CONTENT).digest()
    assert left(tmp_path / HOME) == [FILE]


def test_a_full_disk_is_told_from_one_that_may_not_be_written(tmp_path):
    def broken(fd: int, chunk: bytes) -> None:
        raise OSError(5, "Input/output error")

    with FakeHub({FILE: CONTENT}) as hub:
        assert "cannot be written: Input/output error" in refused(hub, tmp_path, write=broken).message


@pytest.mark.parametrize("endpoint", ["ftp://x", "nonsense", "http:///x"])
def test_a_wrong_endpoint_is_refused(tmp_path, endpoint):
    assert "HF_ENDPOINT" in refused({"HF_ENDPOINT": endpoint}, tmp_path).message
