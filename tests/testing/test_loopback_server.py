"""A server of tests that goes leaves nothing open, and nobody takes its port until it comes back."""

from __future__ import annotations

import gc
import socket
import sys
import warnings

import pytest

from lmagent.testing import ScriptedServer
from lmagent.testing.loopback import held_port


def test_servers_come_and_go_on_a_held_port():
    with held_port() as port:
        for _ in range(3):
            with ScriptedServer(port=port) as server:
                assert server.port == port
                socket.create_connection(("127.0.0.1", port)).close()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port)).close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it would keep the server away, too")
def test_nobody_elses_connection_begins_at_a_held_port():
    with held_port() as port, ScriptedServer() as server:
        for _ in range(3):
            with ScriptedServer(port=port):
                pass
            with socket.socket() as other:
                with pytest.raises(OSError, match="in use"):
                    other.bind(("127.0.0.1", port))
                other.connect(("127.0.0.1", server.port))
                assert other.getsockname()[1] != port


def test_a_server_that_ends_while_somebody_connects_leaves_nothing_open():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        for wait in range(200):
            with ScriptedServer() as server:
                others = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
                for _ in range(wait % 20):
                    server.connections  # noqa: B018  a moment
            for other in others:
                other.close()
        gc.collect()
    assert [str(warning.message) for warning in told] == []
