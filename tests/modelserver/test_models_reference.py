"""docs/models.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import tomlkit

from lmagent.modelserver.memory import BATCH, ENGINE_BYTES
from lmagent.modelserver.sheet import KEYS, UPSTREAM_KEYS, allowed
from lmagent.modelserver.spec import DEFAULT_CONTEXT, ModelSettings

DOCS = (Path(__file__).parents[2] / "docs/models.md").read_text()


def test_the_table_has_every_setting_with_its_default_and_what_it_may_be():
    rows = re.findall(r"^\| `(\w+)` \| `(.*?)` \| (.*?) \| (.*?) \|$", DOCS, re.MULTILINE)
    table = {key: (default, may) for key, default, may, _ in rows if key in KEYS}
    defaults = ModelSettings()
    assert list(table) == list(KEYS)
    assert table == {key: (tomlkit.item(getattr(defaults, key, "")).as_string(), allowed(key)) for key in KEYS}


def test_the_words_for_other_servers_are_those_of_the_code():
    for key, text in UPSTREAM_KEYS.items():
        assert re.search(rf"`{key}` .* {re.escape(text.partition(';')[0])}", DOCS), key


def test_the_figures_are_those_of_the_code():
    assert f"at most {DEFAULT_CONTEXT}" in DOCS
    assert f"4 * {BATCH} *" in DOCS
    assert f"{ENGINE_BYTES >> 20} MiB" in DOCS
