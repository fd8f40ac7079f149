"""Each address that a watched program names is seen, and none beyond this machine is reached."""

import contextlib
import json
import os
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmagent.offline.watch import ConnectionWatch
from lmagent.sandbox.hosts import parse_target

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="watches by seccomp: this is not Linux")

TRIES = """
import ctypes, json, socket, sys
def tried(action):
    try:
        return action() and None
    except OSError as error:
        return error.errno
def datagram(send):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        return tried(lambda: send(made))
def stream(address, family=socket.AF_INET):
    with socket.socket(family) as made:
        return tried(lambda: made.connect(address))
print(json.dumps([
    stream(("192.0.2.1", 80)),
    stream(("2001:db8::1", 443), socket.AF_INET6),
    stream(("::ffff:192.0.2.2", 81), socket.AF_INET6),
    datagram(lambda made: made.sendto(b"x", ("192.0.2.3", 82))),
    datagram(lambda made: made.sendmsg([b"x"], [], 0, ("192.0.2.4", 83))),
    datagram(lambda made: made.connect(("192.0.2.5", 84))),
    datagram(lambda made: made.connect(("127.0.0.1", 53))),
]))
"""


def _let_in(server: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the test is over
        for _ in range(2):
            server.accept()[0].close()


@pytest.fixture
def here() -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_let_in, args=(server,), daemon=True).start()
        yield server.getsockname()


def watched(*command: str, watch: ConnectionWatch | None = None, **options) -> tuple[ConnectionWatch, int, str]:
    watch = watch or ConnectionWatch()
    process = watch.start(command, stdout=-1, **options)
    output, _ = process.communicate(timeout=60)
    watch.join(10)
    return watch, process.returncode, output.decode()


def addresses(watch: ConnectionWatch) -> list[str]:
    return [attempt.address for attempt in watch.attempts]


def test_every_way_to_name_an_address_is_seen_and_refused():
    watch, code, output = watched(sys.executable, "-c", TRIES)
    assert code == 0
    assert set(json.loads(output)) == {101}, "each failed with ENETUNREACH"
    assert addresses(watch) == [
        "tcp 192.0.2.1:80",
        "tcp [2001:db8::1]:443",
        "tcp 192.0.2.2:81",
        "udp 192.0.2.3:82",
        "udp 192.0.2.4:83",
        "udp 192.0.2.5:84",
        "udp 127.0.0.1:53 (the look-up of a name)",
    ]
    assert all("python" in attempt.program for attempt in watch.attempts)


def test_this_machine_is_reached_and_does_not_count(here):
    script = f"import socket; socket.create_connection({here!r}).close(); print('reached')"
    watch, code, output = watched(sys.executable, "-c", script)
    assert (code, output, watch.attempts) == (0, "reached\n", {})


@pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap: it is not installed")
def test_a_program_in_a_network_of_its_own_is_seen_and_named_with_those_above_it():
    script = "import socket; socket.create_connection(('192.0.2.1', 80))"
    inside = f'bwrap --dev-bind / / --unshare-net --unshare-pid {sys.executable} -c "{script}" 2>/dev/null; exit 0'
    watch, code, _ = watched("sh", "-c", inside)
    assert (code, addresses(watch)) == (0, ["tcp 192.0.2.1:80"])
    (attempt,) = watch.attempts
    assert "create_connection" in attempt.program
    assert ", started by bwrap" in attempt.program


def test_a_process_that_outlives_the_program_is_seen():
    left = "sleep 0.5; exec 3<>/dev/tcp/192.0.2.1/80"
    watch, _, _ = watched("bash", "-c", f"setsid bash -c '{left}' >/dev/null 2>&1 &")
    assert addresses(watch) == ["tcp 192.0.2.1:80"]


CONNECTS = """
import os, socket, sys
os.chdir(os.path.dirname(sys.argv[1]))
for path in sys.argv[1:]:
    with socket.socket(socket.AF_UNIX) as made:
        print(made.connect_ex(path))
"""


def test_services_that_would_connect_for_others_are_not_there_by_whatever_path(tmp_path: Path):
    if not os.access("/run", os.W_OK):
        pytest.skip("makes a socket in /run: not root")
    path, elsewhere = f"/run/lmagent-test-{os.getpid()}", str(tmp_path / "own")
    (tmp_path / "link").symlink_to("/run")
    name = os.path.basename(path)
    others = (name, f"//run/{name}", f"/tmp/../run/{name}", str(tmp_path / "link" / name), f"/run/lmagent/../{name}")
    with socket.socket(socket.AF_UNIX) as service, socket.socket(socket.AF_UNIX) as own:
        service.bind(path)
        service.listen(9)
        own.bind(elsewhere)
        own.listen(9)
        try:
            output = watched(sys.executable, "-c", CONNECTS, path, *others, elsewhere)[2]
        finally:
            os.unlink(path)
    assert output.split() == [*["2"] * 6, "0"]


UNUSUAL = """
import ctypes, json, mmap, os, socket, struct
library = ctypes.CDLL(None, use_errno=True)
made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def called(name, *arguments):
    return getattr(library, name)(made.fileno(), *arguments)
high = ctypes.c_void_p(0xffffffffff600000)
pages = mmap.mmap(-1, 8192)
edge = ctypes.addressof(ctypes.c_char.from_buffer(pages)) + 4096
library.munmap(ctypes.c_void_p(edge), 4096)
called("connect", high, 16)
called("sendto", b"x", 1, 0, high, 16)
called("sendmsg", ctypes.c_void_p(edge - 4), 0)
no_family = struct.pack(">HH", 0, 9) + bytes([192, 0, 2, 9]) + bytes(8)
called("connect", no_family, 16)
print(called("sendto", b"x", 1, 0, no_family, 16))
"""


def test_addresses_that_cannot_be_read_or_have_no_family_are_attempts_and_stop_nothing():
    watch, _, output = watched(sys.executable, "-c", UNUSUAL)
    assert output == "-1\n"
    assert list(watch.attempts.values()) == [3, 1]
    assert addresses(watch) == ["udp an address that cannot be read", "udp 192.0.2.9:9"]


def test_the_look_of_chromium_for_ipv6_is_no_attempt_and_sending_there_is():
    script = "import socket; s = socket.socket(10, 2); a = ('2001:4860:4860::8888', 443); print(s.connect_ex(a)); {}"
    watch, _, output = watched(sys.executable, "-c", script.format("0"))
    assert (output, watch.attempts, watch.probed) == ("101\n", {}, True)
    watch, _, _ = watched(sys.executable, "-c", script.format("s.sendto(b'x', a)"), stderr=-3)
    assert addresses(watch) == ["udp [2001:4860:4860::8888]:443"]


@pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap: it is not installed")
def test_a_host_that_a_command_reaches_for_through_its_sandboxs_proxy_is_seen(empty_workspace: Path):
    script = "import urllib.request; urllib.request.urlopen('http://192.0.2.1/')"
    options = ("-w", str(empty_workspace), "--allow-host", "192.0.2.1:80", "--")
    command = (sys.executable, "-m", "lmagent", "sandbox", "exec", *options, "python3", "-c", script)
    watch, _, _ = watched(*command, stderr=-3)
    assert [address for address in addresses(watch) if ":53" not in address] == ["tcp 192.0.2.1:80"]


def test_an_allowed_address_does_not_count():
    watch = ConnectionWatch([parse_target("192.0.2.1:80")])
    script = "import socket; s = socket.socket(); s.setblocking(False); s.connect_ex(('192.0.2.1', 80))"
    watched(sys.executable, "-c", script, watch=watch)
    assert watch.attempts == {}
