"""`lms` of `lmagent lms-shim install`, as a process of its own: on its table, and on a real model server."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from server_kit import Home

from lmagent.cli.lms.verbs import VERBS, NoEquivalent, translate
from lmagent.demo import model_path
from lmagent.modelserver.http import daemon


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    yield made
    daemon.stop(made.server)


def lms(home: Home, *words: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [path or home.folder / ".local" / "bin" / "lms", *words]
    return subprocess.run(command, capture_output=True, text=True, env=home.env, cwd=home.folder, timeout=90)


@pytest.mark.engine
def test_the_verbs_run_a_real_server_and_load_the_demo_model(home: Home) -> None:
    pytest.importorskip("xllamacpp", reason="lms was NOT tested on the engine: the package xllamacpp is missing")
    installed = home.run("lms-shim", "install")
    assert installed.returncode == 0
    assert "is not in PATH" in installed.stderr
    started = lms(home, "server", "start", "--port", "0", "--cors", "--quiet")
    assert (started.returncode, "listens at http://127.0.0.1:" in started.stdout) == (0, True), started.stderr
    assert json.loads(lms(home, "daemon", "status", "--json").stdout)["running"] is True
    assert lms(home, "import", str(model_path()), "--symbolic-link", "-y").returncode == 0
    (name,) = [json.loads(line)["name"] for line in lms(home, "ls", "--json").stdout.splitlines()]
    loaded = lms(home, "load", name, "--gpu", "off", "-c", "2048", "--ttl=600", "-y")
    assert loaded.returncode == 0, loaded.stderr
    (row,) = [json.loads(line) for line in lms(home, "ps", "--json").stdout.splitlines()]
    assert (row["name"], row["state"], row["context"], row["gpu_layers"], row["ttl"]) == (name, "ready", 2048, 0, 600)
    assert "loading" in lms(home, "server", "logs").stdout
    assert name in lms(home, "server", "models", "list").stdout
    assert lms(home, "unload").stdout.startswith(f"{name}: unloaded")
    assert lms(home, "load", name).returncode == 0
    assert lms(home, "unload", "--all").returncode == 0
    assert lms(home, "ps").stdout == "no model is loaded\n"
    none = lms(home, "unload")
    assert (none.returncode, "no model is loaded" in none.stderr) == (1, True)
    assert lms(home, "server", "stop").returncode == 0
    assert lms(home, "status").returncode == 1


def test_it_makes_and_tests_an_agent_project_as_the_guide_shows(home: Home) -> None:
    home.run("lms-shim", "install")
    assert lms(home, "agent", "init", "my-agent", "--type", "conversational").returncode == 0
    tested = lms(home, "agent", "test", "my-agent")
    assert (tested.returncode, "1 test, 0 failed" in tested.stdout) == (0, True), tested.stdout
    assert lms(home, "agent", "build", "my-agent", "-o", "agent.tar.gz").returncode == 0
    assert "own tools" in lms(home, "agent", "show", "agent.tar.gz").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("runtime ls", "lms runtime has no equivalent in lmagent\n  → lmagent models doctor"),
        (
            "load x --gpu 0.5",
            "lms load --gpu 0.5 has no equivalent in lmagent\n  → lmagent models load NAME --gpu-layers",
        ),
        ("load x --identifier y", "--identifier has no equivalent"),
        ("ls --host other", "→ LLM_URL="),
        ("load x --gpus 2", "lmagent has no lms load --gpus\n  → flags that it has: --yes, --gpu"),
        ("load x --ttl", "lms load --ttl needs a value"),
        ("server restart", "→ lms server start|stop|status|"),
        ("server", "→ lms server start|stop|status|"),
        ("lod", "did you mean lms load?"),
    ],
)
def test_what_has_no_equivalent_is_said_at_once_with_the_nearest_command(home: Home, words: str, said: str) -> None:
    home.run("lms-shim", "install")
    done = lms(home, *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        ("get owner/repo@q4_k_m --gguf -y", "models pull owner/repo:q4_k_m"),
        ("download owner/repo", "models pull owner/repo"),
        ("chat qwen3 --log-level debug", "chat -m qwen3"),
        ("import a.gguf --copy", "models import --copy a.gguf"),
        ("log stream --source server --json", "server logs --follow --json"),
        ("load a --gpu=max --context-length=4096", "models load --gpu-layers -1 --context 4096 a"),
        ("server logs -f", "server logs -f"),
        ("server start --port 1234 --cors --bind 0.0.0.0", "server start --port 1234 --cors --bind 0.0.0.0"),
        ("agent run ./agent.yaml --debug --log-level trace", "agent run ./agent.yaml --debug --log-level trace"),
        ("models list", "models list"),
        ("server models list", "server models list"),
        ("server stats", "server stats"),
        ("download meta-llama/Meta-Llama-3-8B-Instruct", "models pull meta-llama/Meta-Llama-3-8B-Instruct"),
        ("version", "--version"),
        ("load --help", "models load --help"),
    ],
)
def test_a_verb_is_our_command_with_our_flags(words: str, ours: str) -> None:
    assert translate(words.split()) == ours.split()


def test_each_verb_of_the_table_is_a_command_with_help_or_names_one(home: Home) -> None:
    from click.testing import CliRunner

    from lmagent.cli.main import rewrite
    from lmagent.cli.root import root

    for name, verb in VERBS.items():
        if verb.instead:
            with pytest.raises(NoEquivalent):
                translate(name.split())
            continue
        for flag in verb.flags.values():
            value = ["1"] if flag.value else []
            options = [*flag.to, *value] if flag.to else []
            asked = CliRunner().invoke(root, rewrite([*verb.to, *options, "--help"]), prog_name="lmagent")
            assert asked.exit_code == 0, (name, options, asked.output)


def test_it_is_installed_once_replaces_nothing_foreign_and_is_removed(home: Home) -> None:
    folder = home.folder / "bin"
    folder.mkdir()
    foreign = folder / "lms"
    foreign.write_text("#!/bin/sh\necho theirs\n")
    refused = home.run("lms-shim", "install", "--dir", str(folder))
    assert (refused.returncode, "is not lmagent's" in refused.stderr) == (1, True)
    assert home.run("lms-shim", "remove", "--dir", str(folder)).returncode == 1
    assert foreign.read_text() == "#!/bin/sh\necho theirs\n"
    search = {"PATH": f"{folder}{os.pathsep}{home.env['PATH']}"}
    for more in (["--force"], []):
        done = home.run("lms-shim", "install", "--dir", str(folder), *more, **search)
        assert (done.returncode, done.stderr) == (0, "")
    assert stat.S_IMODE(foreign.stat().st_mode) == 0o755
    assert "lms load" in lms(home, path=foreign).stdout
    other = home.folder / "other"
    later = home.run("lms-shim", "install", "--dir", str(other), PATH=f"{search['PATH']}{os.pathsep}{other}")
    assert f"{foreign} comes first in PATH" in later.stderr
    assert home.run("lms-shim", "remove", "--dir", str(folder)).returncode == 0
    assert not foreign.exists()
    assert home.run("lms-shim", "remove", "--dir", str(folder)).returncode == 1


def test_it_imports_nothing_from_the_folder_that_it_is_typed_in(home: Home) -> None:
    home.run("lms-shim", "install")
    (home.folder / "lmagent.py").write_text("raise SystemExit('taken from the folder')\n")
    assert lms(home, "version").stdout.startswith("lmagent")
    assert shutil.which("sh") is not None
    assert sys.executable in (home.folder / ".local" / "bin" / "lms").read_text()
