from __future__ import annotations

from pathlib import Path

import pytest

from lmagent.config import paths

HOME = {"HOME": "/home/me", "USERPROFILE": "/home/me"}


@pytest.mark.parametrize(
    ("platform", "env", "config", "data"),
    [
        (
            "linux",
            {},
            "/home/me/.config/lmagent/config.toml",
            "/home/me/.local/share/lmagent",
        ),
        (
            "linux",
            {"XDG_CONFIG_HOME": "/c", "XDG_DATA_HOME": "/d"},
            "/c/lmagent/config.toml",
            "/d/lmagent",
        ),
        (
            "linux",
            {"XDG_CONFIG_HOME": "relative", "XDG_DATA_HOME": ""},
            "/home/me/.config/lmagent/config.toml",
            "/home/me/.local/share/lmagent",
        ),
        (
            "darwin",
            {},
            "/home/me/Library/Application Support/lmagent/config.toml",
            "/home/me/Library/Application Support/lmagent",
        ),
        (
            "darwin",
            {"XDG_CONFIG_HOME": "/c"},
            "/c/lmagent/config.toml",
            "/home/me/Library/Application Support/lmagent",
        ),
        (
            "win32",
            {"APPDATA": "/roaming", "LOCALAPPDATA": "/local"},
            "/roaming/lmagent/config.toml",
            "/local/lmagent",
        ),
    ],
)
def test_files_lie_where_the_platform_wants_them(platform: str, env: dict[str, str], config: str, data: str) -> None:
    env = {**HOME, **env}
    assert paths.config_file(env, platform) == Path(config)
    assert paths.data_dir(env, platform) == Path(data)


def test_lmagent_config_names_the_file_itself() -> None:
    assert paths.config_file({**HOME, "LMAGENT_CONFIG": "/x/y.toml"}) == Path("/x/y.toml")
    assert paths.config_file({**HOME, "LMAGENT_CONFIG": "~/y.toml"}) == Path("/home/me/y.toml")


def test_without_a_usable_home_variable_the_account_says_where_home_is() -> None:
    assert paths.home_dir({}).is_absolute()
    assert paths.home_dir({"HOME": "relative"}).is_absolute()
