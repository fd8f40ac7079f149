"""Manifests: what can be carried out is put in order, everything else is refused before anything is begun."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmagent.agents.feature import DelegateArgs
from lmagent.agents.orders import MOST_TASKS, inside, order_of, orders_of
from lmagent.core.errors import ToolError


def task(name: str, *needs: str, **more: Any) -> dict[str, Any]:
    return {"task_id": name, "objective": f"do {name}", "depends_on": list(needs), **more}


@pytest.mark.parametrize("wrap", [lambda tasks: tasks, lambda tasks: {"tasks": tasks}, json.dumps])
def test_a_manifest_may_be_a_list_an_object_or_json_text(wrap: Any, tmp_path: Path) -> None:
    orders = orders_of(wrap([task("b", "a"), task("a")]), tmp_path)
    assert [order.task for order in orders] == ["a", "b"]


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        ("{not json", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        (7, "must be"),
        ({"steps": []}, "must be"),
        ([], "1 to 8 tasks, this one 0"),
        ([task(f"t{number}") for number in range(100)], "1 to 8 tasks, this one 100"),
        ([task("a"), task("a")], "Two tasks have the task_id 'a'"),
        ([task("a", "b"), task("b", "a")], "go in a circle"),
        ([task("a", "a")], "go in a circle"),
        ([task("a", "ghost")], "depends on 'ghost', which is no task"),
        ([{"task_id": "a"}], "Task 1 of the manifest is not usable"),
        ([task("a"), "b"], "Task 2 of the manifest is not usable"),
        ([task(" ")], "needs a task_id"),
        ([task("a", deliverable={"type": "file", "path": "../out.txt"})], "not a path of a file in the workspace"),
        ([task("a", deliverable={"type": "file", "path": "/etc/passwd"})], "not a path of a file in the workspace"),
        ([task("a", deliverable={"type": "file", "path": ".git/config"})], "not a path of a file in the workspace"),
        ([task("a", deliverable={"type": "file", "path": "a\0b"})], "not a path of a file in the workspace"),
        ([task("a", deliverable={"type": "file"})], "needs its path"),
        ([task("a", deliverable={"type": "song"})], "Task 1 of the manifest is not usable"),
        ([task("a", deliverable={"type": "data", "schema": {"type": "nonsense"}})], "no JSON schema"),
        ([task("a", deliverable={"type": "data", "schema": {"$ref": "http://x/y"}})], "refers to another document"),
    ],
)
def test_what_cannot_be_carried_out_is_refused_with_the_reason(manifest: Any, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="Nothing was begun") as refused:
        orders_of(manifest, tmp_path)
    assert reason in refused.value.message


@given(data=st.data())
def test_every_task_comes_behind_what_it_depends_on(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.text("abcdef", min_size=1, max_size=3), min_size=1, max_size=MOST_TASKS, unique=True))
    earlier = [data.draw(st.lists(st.sampled_from(names[:at]), unique=True)) if at else [] for at in range(len(names))]
    tasks = [task(name, *needs) for name, needs in zip(names, earlier, strict=True)]
    orders = orders_of(data.draw(st.permutations(tasks)), Path("/nowhere"))
    assert sorted(order.task for order in orders) == sorted(names)
    done: set[str] = set()
    for order in orders:
        assert set(order.depends_on) <= done
        done.add(order.task)


def test_a_path_alone_makes_the_deliverable_a_file(tmp_path: Path) -> None:
    order = order_of(DelegateArgs("write it", deliverable_path="./docs/../a.txt"), tmp_path)
    assert (order.deliverable.type, order.deliverable.path) == ("file", "a.txt")


@pytest.mark.parametrize(
    "manifest",
    [
        [{"task_id": 1, "objective": "x"}, {"task_id": 2, "objective": "y", "depends_on": [1]}],
        [{"task_id": "1", "objective": "x"}, {"task_id": "2", "objective": "y", "depends_on": 1}],
        [{"task_id": "1", "objective": "x", "depends_on": ""}, {"task_id": "2", "objective": "y", "depends_on": "1"}],
        [{"task_id": "1", "objective": "x", "constraints": None, "deliverable": None}, task("2", "1")],
        {"tasks": json.dumps([task("1"), task("2", "1", deliverable={"type": "report", "path": None})])},
    ],
)
def test_numbers_for_names_nulls_and_lists_as_text_are_understood(manifest: Any, tmp_path: Path) -> None:
    assert [(order.task, order.depends_on) for order in orders_of(manifest, tmp_path)] == [("1", ()), ("2", ("1",))]


def test_one_path_for_several_is_a_list_of_one(tmp_path: Path) -> None:
    (order,) = orders_of([task("a", deliverable={"paths": "out/a.md"})], tmp_path)
    assert (order.deliverable.type, order.deliverable.paths) == ("files", ("out/a.md",))


@pytest.mark.parametrize("path", [".git/config", "sub/.git/config", "sub/.lmagent/x", ".lmagent/config.toml"])
def test_a_path_that_no_tool_may_write_is_no_deliverable(path: str, tmp_path: Path) -> None:
    assert inside(tmp_path, path) is None


def test_an_empty_objective_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="objective is empty"):
        order_of(DelegateArgs("  "), tmp_path)


def test_a_path_through_a_link_that_leads_out_is_none_in_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    os.symlink(tmp_path / "out", tmp_path / "in" / "link")
    assert inside(tmp_path / "in", "link/a.txt") is None
    assert inside(tmp_path / "in", "a.txt") == "a.txt"
    assert inside(tmp_path / "in", str(tmp_path / "in" / "a.txt")) == "a.txt"
    assert inside(tmp_path / "in", "/workspace/a.txt") == "a.txt"
