from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmagent.config.files import save_settings
from lmagent.core.errors import ConfigError

TEXT = st.text(st.characters(codec="utf-8"))
SCALAR = TEXT | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
VALUES: st.SearchStrategy[dict[str, Any]] = st.dictionaries(TEXT, SCALAR | st.lists(TEXT, max_size=3), max_size=5)
ONE_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)


def updated(folder: Path, text: str, values: dict[str, Any]) -> str:
    path = folder / "config.toml"
    path.write_bytes(text.encode())
    save_settings(path, values)
    return path.read_bytes().decode()


@ONE_FOLDER
@given(VALUES, VALUES)
def test_an_update_sets_the_given_keys_and_keeps_the_others(
    tmp_path: Path, old: dict[str, Any], new: dict[str, Any]
) -> None:
    assert tomllib.loads(updated(tmp_path, tomlkit.dumps(old), new)) == {**old, **new}


def test_an_update_keeps_comments_order_and_tables(tmp_path: Path) -> None:
    text = (
        "# mine\n"
        "llm_model = 'old' # the model\n"
        'permission_deny = [\n  "a", # one\n  "b",\n]\n'
        "prewarm = false\n"
        "max_errors = 5 # keep\n"
        "\n"
        "[other]\n"
        'llm_model = "untouched"\n'
    )
    values = {"permission_deny": ["c"], "llm_model": "new", "max_nudges": 1, "prewarm": None, "theme": None}
    assert updated(tmp_path, text, values) == (
        "# mine\n"
        'llm_model = "new" # the model\n'
        'permission_deny = ["c"]\n'
        "max_errors = 5 # keep\n"
        "max_nudges = 1\n"
        "\n"
        "[other]\n"
        'llm_model = "untouched"\n'
    )


def test_a_file_without_a_last_line_end_is_continued_on_a_new_line(tmp_path: Path) -> None:
    assert updated(tmp_path, "a = 1", {"b": 2}) == "a = 1\nb = 2\n"


def test_a_key_in_a_text_of_many_lines_is_not_taken_for_the_key(tmp_path: Path) -> None:
    text = 'b = """\na = 1\n"""\n'
    assert tomllib.loads(updated(tmp_path, text, {"a": 2})) == {"a": 2, "b": "a = 1\n"}


@pytest.mark.parametrize("content", [b"a = ", b"a = '\xff'\n"])
def test_a_file_that_is_no_toml_is_refused_and_stays(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be updated"):
        save_settings(path, {"b": 2})
    assert path.read_bytes() == content
