import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Sequence

import pytest
from proxy_kit import OK, Proxy, answer, echo, proxying, serving

from lmagent.sandbox import seccomp
from lmagent.sandbox.proxy import SOCKET, find_python

PYTHON = "/usr/bin/python3"
_TOP = ("bin", "lib", "lib32", "lib64", "sbin")


def _bwrap() -> list[str]:
    links = [part for name in _TOP if os.path.exists(f"/{name}") for part in ("--symlink", f"usr/{name}", f"/{name}")]
    return [
        *("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"),
        *("--setenv", "PATH", "/usr/bin:/bin", "--ro-bind", "/usr", "/usr", *links, "--proc", "/proc", "--dev", "/dev"),
        *("--tmpfs", "/tmp", "--chdir", "/tmp"),
    ]


def _why_not() -> str:
    if sys.platform != "linux" or not shutil.which("bwrap"):
        return "bwrap is not installed"
    if not os.access(PYTHON, os.X_OK):
        return f"there is no {PYTHON} to run inside"
    done = subprocess.run([*_bwrap(), "--", "/usr/bin/env", "true"], capture_output=True, text=True)
    return done.stderr.strip() if done.returncode else ""


WHY_NOT = _why_not()
needs_bubblewrap = pytest.mark.skipif(bool(WHY_NOT), reason=f"needs bubblewrap: {WHY_NOT}")


def inside(proxy: Proxy, argv: Sequence[str], before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run a command in a sandbox whose only way out is the proxy, below our system call filter."""
    read, write = os.pipe()
    os.write(write, seccomp.program())
    os.close(write)
    mounts = ["--bind", proxy.path, SOCKET, "--remount-ro", "/", "--seccomp", str(read)]
    try:
        return subprocess.run(
            [*_bwrap(), *mounts, "--", *before, *proxy.proxy.wrap(argv, find_python())],
            pass_fds=(read,),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        os.close(read)


def script(text: str, *arguments: object) -> list[str]:
    return [PYTHON, "-c", textwrap.dedent(text), *map(str, arguments)]


FORWARDER = """
        def forwarder():
            import os
            for pid in filter(str.isdigit, os.listdir("/proc")):
                status = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status"))
                command = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\\0")
                if int(status["PPid"]) == 1 and b"/run/lmagent/proxy.sock" in command:
                    return pid, status
"""


@needs_bubblewrap
@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_curl_inside_reaches_the_listed_server_and_no_other():
    with serving(answer(OK)) as good, serving(answer(OK)) as other, proxying(good.at) as proxy:
        assert inside(proxy, ["curl", "-sS", f"http://{good.at}/x"]).stdout == "ok"
        assert inside(proxy, ["curl", "-sSp", f"http://{good.at}/x"]).stdout == "ok"
        assert "Blocked by lmagent" in inside(proxy, ["curl", "-sS", f"http://{other.at}/"]).stdout
        denied = inside(proxy, ["curl", "-sS", "https://example.com/"])
        assert denied.returncode == 56
        assert "403" in denied.stderr
        assert inside(proxy, ["curl", "-sS", "--noproxy", "*", f"http://{good.at}/"]).returncode == 7
    assert len(good.heads) == 2
    assert not other.heads


@needs_bubblewrap
def test_python_inside_reaches_the_listed_server_and_nothing_else():
    attempts = """
        import socket, sys, urllib.request, urllib.error
        good, port = sys.argv[1], int(sys.argv[2])
        print("get", urllib.request.urlopen(f"http://{good}/").read())
        def attempt(name, call):
            try: call()
            except Exception as error: print(name, "failed")
            else: print(name, "WORKED")
        def udp(host):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                s.settimeout(0.2); s.sendto(b"x", (host, 53)); s.recv(1)
        attempt("other port", lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/").read())
        attempt("unlisted", lambda: urllib.request.urlopen("http://example.com/").read())
        attempt("direct", lambda: socket.create_connection(("127.0.0.1", port), 1))
        attempt("direct listed", lambda: socket.create_connection(("127.0.0.1", int(good.split(":")[1])), 1))
        attempt("direct outside", lambda: socket.create_connection(("1.1.1.1", 443), 1))
        attempt("direct ipv6", lambda: socket.create_connection(("2606:4700::1111", 443), 1))
        attempt("dns", lambda: socket.getaddrinfo("example.com", 80))
        attempt("udp outside", lambda: udp("8.8.8.8"))
        attempt("udp loopback", lambda: udp("127.0.0.53"))
        attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
        attempt("packet", lambda: socket.socket(17, socket.SOCK_RAW, 3))
        attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
        def past_the_forwarder():
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(5); s.connect("/run/lmagent/proxy.sock")
                s.sendall(f"CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\n\\r\\n".encode())
                assert s.recv(100).startswith(b"HTTP/1.1 200")
        attempt("past the forwarder", past_the_forwarder)
        print([name for _, name in socket.if_nameindex()])
    """
    with serving(answer(OK)) as good, serving(echo) as other, proxying(good.at) as proxy:
        done = inside(proxy, script(attempts, good.at, other.port))
    first, *tried, interfaces = done.stdout.splitlines()
    assert first == "get b'ok'", done.stderr
    assert len(tried) == 13
    assert all(line.endswith("failed") for line in tried), tried
    assert interfaces == "['lo']"
    assert not other.heads


@needs_bubblewrap
def test_a_server_that_the_command_starts_is_reached_directly():
    code = """
        import http.server, threading, urllib.request
        server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/").status)
    """
    with proxying("example.com") as proxy:
        assert inside(proxy, script(code)).stdout == "200\n"


@needs_bubblewrap
def test_fifty_parallel_requests_and_two_large_bodies_go_through_the_forwarder():
    code = """
        import concurrent.futures, hashlib, os, socket, sys, urllib.request
        url = f"http://{sys.argv[1]}/"
        with concurrent.futures.ThreadPoolExecutor(50) as pool:
            print({r for r in pool.map(lambda n: urllib.request.urlopen(url + str(n)).read(), range(50))})
        import http.client, threading
        host, _, port = os.environ["http_proxy"].rpartition("/")[2].partition(":")
        s = socket.create_connection((host, int(port)))
        s.sendall(f"CONNECT {sys.argv[2]} HTTP/1.1\\r\\n\\r\\n".encode())
        assert s.recv(1000).endswith(b"\\r\\n\\r\\n")
        block = os.urandom(1 << 20)
        def send():
            s.sendall(b"start\\r\\n\\r\\n")
            for _ in range(20): s.sendall(block)
            s.shutdown(socket.SHUT_WR)
        threading.Thread(target=send).start()
        got = hashlib.sha256()
        while piece := s.recv(65536): got.update(piece)
        print(got.digest() == hashlib.sha256(block * 20 + b"end").digest())
        print(int(forwarder()[1]["VmHWM"].split()[0]) < 32 * 1024)
    """

    def mirrored(connection: socket.socket, rest: bytes) -> None:
        echo(connection, rest)
        connection.sendall(b"end")  # not reached by a timeout: the end itself went through

    with serving(answer(OK)) as server, serving(mirrored) as mirror, proxying(server.at, mirror.at) as proxy:
        done = inside(proxy, script(FORWARDER + code, server.at, mirror.at))
    assert done.stdout.splitlines() == ["{b'ok'}", "True", "True"], done.stderr


@needs_bubblewrap
def test_exit_status_signals_and_missing_programs_are_those_of_the_command():
    with proxying("example.com") as proxy:
        assert inside(proxy, ["sh", "-c", "exit 37"]).returncode == 37
        assert inside(proxy, ["sh", "-c", "kill -TERM $$"]).returncode == 128 + signal.SIGTERM
        assert inside(proxy, ["sh", "-c", "kill -KILL $$"]).returncode == 128 + signal.SIGKILL
        missing = inside(proxy, ["no-such-program"])
        assert (missing.returncode, missing.stderr) == (127, "lmagent: no-such-program: not found\n")
        assert inside(proxy, ["/tmp"]).returncode == 126


@needs_bubblewrap
def test_the_forwarder_is_no_child_of_the_command_and_holds_none_of_its_descriptors():
    code = """
        import os
        try: os.wait()
        except ChildProcessError: print("no children")
        pid, status = forwarder()
        print([os.readlink(f"/proc/{pid}/fd/{n}").split(":")[0] for n in sorted(os.listdir(f"/proc/{pid}/fd"))])
        print(os.readlink("/proc/self/fd/3"), os.readlink("/proc/self/fd/9"))
        print(os.getsid(int(pid)) != os.getsid(0), status["Threads"].strip())
        print(os.environ["NO_PROXY"], *sorted(name for name in os.environ if name.lower().endswith("_proxy")))
    """
    channels = ("sh", "-c", 'exec 3</dev/zero 9</dev/zero; exec "$@"', "sh")
    with proxying("example.com", "[::1]:80") as proxy:
        done = inside(proxy, script(FORWARDER + code), before=channels)
    names = "ALL_PROXY HTTPS_PROXY HTTP_PROXY NODE_USE_ENV_PROXY NO_PROXY all_proxy http_proxy https_proxy no_proxy"
    assert done.stdout.splitlines() == [
        "no children",
        "['/dev/null', '/dev/null', '/dev/null', 'socket']",
        "/dev/zero /dev/zero",
        "True 1",
        f"localhost,127.0.0.1 {names}",
    ], done.stderr


@needs_bubblewrap
def test_signals_that_python_ignores_are_not_ignored_by_the_command():
    with proxying("example.com") as proxy:
        shown = inside(proxy, ["grep", "SigIgn", "/proc/self/status"]).stdout
        ignored = int(shown.split()[1], 16)  # others may be ignored because whoever started the tests ignores them
        assert not any(ignored & (1 << (number - 1)) for number in (signal.SIGPIPE, signal.SIGXFSZ))


@needs_bubblewrap
def test_nothing_is_run_when_the_proxy_is_not_there():
    with proxying("example.com") as proxy:
        command = proxy.proxy.wrap(["echo", "ran"], PYTHON)
        done = subprocess.run([*_bwrap(), "--", *command], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("lmagent: the network of this command could not be set up")
