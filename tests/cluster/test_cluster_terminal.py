"""A terminal in a folder with `cluster_url`: its sessions are in PostgreSQL, and none in the folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cluster_kit import Cluster

from lmagent.testing import ScriptedServer, say


class Terminal:
    def __init__(self, known: Cluster, folder: Path, server: str) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        self._env = {name: value for name, value in os.environ.items() if not name.startswith(("LLM", "LM_", "XDG"))}
        self._env |= {
            "HOME": str(folder),
            "LMAGENT_CLUSTER_URL": known.url,
            "LLM_BASE_URL": server,
            "LLM_MODEL": "tiny",
        }

    def run(self, *words: str) -> str:
        done = self.called(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def called(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "lmagent", *words],
            cwd=self.folder,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def test_a_session_is_begun_listed_resumed_forked_exported_and_deleted(known: Cluster, tmp_path: Path) -> None:
    with ScriptedServer(lambda _: say("Noted.")) as server:
        terminal = Terminal(known, tmp_path, server.base_url)
        terminal.run("remember the heron", "--sandbox", "off")
        store = known.store()
        (session,) = store.sessions()
        assert not (terminal.folder / ".lmagent" / "sessions").exists()
        assert session in terminal.run("sessions", "list")
        assert session in terminal.run("sessions", "list", "--search", "heron")
        terminal.run("--resume", session, "and the egret", "--sandbox", "off")
        exported = terminal.run("sessions", "export", session)
        assert "heron" in exported
        assert "egret" in exported
        assert "egret" in terminal.run("sessions", "show", "last")
        terminal.run("sessions", "fork", session)
        assert len(store.sessions()) == 2
        terminal.run("sessions", "rm", session)
        assert session not in store.sessions()
        assert session not in terminal.run("sessions", "list")
        assert known.sql("SELECT count(*) FROM process") == "0"  # each terminal has left the cluster


def test_a_purge_changes_nothing_before_the_sessions_that_have_the_text_are_deleted(
    known: Cluster, tmp_path: Path
) -> None:
    secret = "Operation Kingfisher begins in Narvik"
    with ScriptedServer(lambda _: say("Noted.")) as server:
        terminal = Terminal(known, tmp_path, server.base_url)
        terminal.run(f"Note: {secret}.", "--sandbox", "off")
        terminal.run("Note: nothing.", "--sandbox", "off")
        harmless, secretive = known.store().latest(), known.store().sessions()[0]
        terminal.run("memory", "add", f"{secret}.")
        assert "Kingfisher" in terminal.run("memory", "search", "kingfisher")
        assert secretive in terminal.run("sessions", "list", "--search", "kingfisher")
        refused = terminal.called("memory", "purge", "--yes", secret)
        assert refused.returncode == 1
        assert "the text is in 1 session of the cluster's database" in refused.stderr
        assert f"→ lmagent sessions rm {secretive}; then purge it again" in refused.stderr
        assert "Kingfisher" in terminal.run("memory", "list")
        terminal.run("sessions", "rm", secretive)
        terminal.run("memory", "purge", "--yes", secret)
        assert terminal.run("memory", "list") == ""
        assert known.store().sessions() == [harmless]
    left = [path for path in tmp_path.rglob("*") if path.is_file() and b"Kingfisher" in path.read_bytes()]
    assert left == []
    assert known.sql("SELECT count(*) FROM memory_item WHERE text LIKE '%Kingfisher%'") == "0"
    assert known.sql("SELECT count(*) FROM event WHERE convert_from(line, 'UTF8') LIKE '%Kingfisher%'") == "0"
