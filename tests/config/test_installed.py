"""The printed command that adds a part to this copy of the program fits how the copy was installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmagent.config.installed import install_command

FOLDER = {"url": "file:///home/ann/my%20lmagent", "dir_info": {}}
CHECKOUT = {"url": "file:///home/ann/lmagent", "dir_info": {"editable": True}}
REPOSITORY = {"url": "https://example.org/lmagent", "vcs_info": {"vcs": "git", "commit_id": "1"}}


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    (tmp_path / "lib" / "python3.11" / "site-packages" / "pip").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("left_behind", "url", "command"),
    [
        ("", {}, "pip install 'lmagent-local[local]'"),
        ("", FOLDER, "pip install '/home/ann/my lmagent[local]'"),
        ("", CHECKOUT, "pip install -e '/home/ann/lmagent[local]'"),
        ("", REPOSITORY, "pip install 'lmagent-local[local] @ git+https://example.org/lmagent'"),
        ("uv-receipt.toml", FOLDER, "uv tool install --force '/home/ann/my lmagent[local]'"),
        ("uv-receipt.toml", CHECKOUT, "uv tool install --force --editable '/home/ann/lmagent[local]'"),
        ("pipx_metadata.json", {}, "pipx install --force 'lmagent-local[local]'"),
    ],
)
def test_the_command_installs_this_very_copy_with_what_installed_it(prefix, left_behind, url, command):
    if left_behind:
        (prefix / left_behind).write_text("")
    assert install_command("local", prefix=prefix, url=url) == command


def test_an_environment_without_pip_is_filled_by_uv(tmp_path):
    assert install_command("local", prefix=tmp_path, url={}).startswith(f"uv pip install --python {tmp_path} ")


def test_further_packages_come_along(prefix):
    assert install_command("transformers", "torch", prefix=prefix, url={}).endswith(
        "'lmagent-local[transformers]' torch"
    )


def test_this_copys_own_command_never_names_the_package_of_somebody_else():
    assert "lmagent[" not in install_command("local").replace("/lmagent[", "/x[")
    assert "[local]" in install_command("local")
