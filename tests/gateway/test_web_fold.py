"""The page's fold (web/session/fold.js), run by node: after every event it shows what core/view.py shows."""

import json
import shutil
import subprocess
from functools import reduce as fold
from itertools import accumulate
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import inspect
from testkit.amount import examples

from lmagent.core import events as ev
from lmagent.core.messages import Message, ToolCall, user
from lmagent.core.view import View, reduce

WEB = Path(__file__).parents[2] / "src/lmagent/gateway/web"
GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*.jsonl"))

DRIVER = """
import { createInterface } from "node:readline";
import { EMPTY, reduce } from "./fold.js";
for await (const line of createInterface({ input: process.stdin })) {
  let view = EMPTY;
  console.log(JSON.stringify([view, ...JSON.parse(line).map((event) => (view = reduce(view, event)))]));
}
"""

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed: it runs the page's fold")


class Page:
    """A process of node that folds lists of events."""

    def __init__(self, folder: Path) -> None:
        for name in ("fold.js", "pace.js"):
            shutil.copy(WEB / "session" / name, folder)
        (folder / "package.json").write_text('{"type": "module"}')
        (folder / "driver.js").write_text(DRIVER)
        self.node = subprocess.Popen(
            ["node", folder / "driver.js"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )

    def views(self, events: list[ev.Event]) -> list:
        """The view before the first event, and after each."""
        assert self.node.stdin is not None
        assert self.node.stdout is not None
        self.node.stdin.write("[" + ",".join(ev.encode(event).decode() for event in events) + "]\n")
        self.node.stdin.flush()
        return json.loads(self.node.stdout.readline())

    def close(self) -> None:
        """End it."""
        self.node.communicate()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    page = Page(tmp_path_factory.mktemp("fold"))
    yield page
    page.close()


def expected(events: list[ev.Event]) -> list:
    return [json.loads(msgspec.json.encode(view)) for view in accumulate(events, reduce, initial=View())]


@pytest.mark.parametrize("log", GOLDEN, ids=lambda path: path.name)
def test_the_golden_logs_look_the_same_on_the_page(page, log):
    events = [ev.decode(line) for line in log.read_bytes().splitlines()]
    assert page.views(events) == expected(events)


SIGNS = "abü😀 \n\t\x0b\x1c\x1f\x85\xa0\u2003\u2028\ufeff#*0\x00\x1b\x9f\u061c\u200d\u200f\u202e\u2066\U000e0041"
WORDS = st.text(st.sampled_from(SIGNS), max_size=12)
POOLS = {
    name: st.sampled_from(["i1", "i2", "lmagent-3", "lmagent-command-4"])
    for name in ("id", "call_id", "approval", "input", "child", "depends_on")
}
POOLS["code"] = st.sampled_from(["server_away", "server_back", "constructor"])
BOUND = 10_000_000


def of(kind: inspect.Type, name: str = "") -> st.SearchStrategy:
    """Values of a type; names that refer to something are few, so that they do."""
    match kind:
        case inspect.StrType():
            return POOLS.get(name, WORDS)
        case inspect.IntType():
            return st.integers(0, BOUND) | st.integers(0, 5000)
        case inspect.FloatType():
            return st.floats(0, BOUND, allow_nan=False) | st.integers(0, 40).map(lambda number: number / 8)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.AnyType():
            return WORDS | st.integers(0, 9)
        case inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case inspect.VarTupleType(item_type=item):
            return st.lists(of(item, name), max_size=4).map(tuple)
        case inspect.DictType():
            return st.dictionaries(
                st.sampled_from(["diff", "path", "picture", "summary"]), of(inspect.AnyType()), max_size=2
            )
        case inspect.UnionType(types=types):
            return st.one_of([of(one, name) for one in types])
        case inspect.StructType(cls=cls, fields=fields):
            return st.builds(cls, **{field.name: of(field.type, field.name) for field in fields})
    raise AssertionError(f"no values of {kind}")


KINDS = [kind for kind in inspect.type_info(ev.Event).types if kind.cls is not ev.SubagentEvent]
EVENT = st.recursive(
    st.one_of([st.deferred(lambda kind=kind: of(kind)) for kind in KINDS]),
    lambda inner: st.builds(ev.SubagentEvent, call_id=POOLS["call_id"], child=POOLS["child"], event=inner),
    max_leaves=3,
)


@settings(
    max_examples=examples(250), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(st.lists(EVENT, max_size=25))
def test_any_events_look_the_same_on_the_page(page, events):
    assert page.views(events) == expected(events)


@pytest.mark.parametrize(
    "arguments", ['{"name": "web_fetch", "arguments": {}}', '{"name":"ü"}', '{"a": {"name": "b"}}', "", "{"]
)
def test_the_tool_that_use_tool_calls_has_the_same_name(page, arguments):
    called = Message("assistant", (ToolCall("c1", "use_tool", arguments),))
    ended = ev.ToolFinished(call_id="c1", tool="x", status="error", content="no", data={"summary": "web_fetch there"})
    events: list[ev.Event] = [ev.MessageAdded(message=called, origin="model"), ended]
    assert page.views(events) == expected(events)


STEPS = st.builds(
    ev.StepFinished,
    step=st.just(1),
    finish_reason=st.just("stop"),
    usage=of(inspect.type_info(ev.Usage)),
    first_token_s=of(inspect.FloatType()),
    total_s=of(inspect.FloatType()),
)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(STEPS, max_size=6))
def test_speeds_are_those_of_python(page, steps):
    assert page.views(steps)[-1]["pace"] == json.loads(msgspec.json.encode(fold(reduce, steps, View()).pace))


def test_an_event_of_a_later_version_changes_nothing(page):
    assert page.node.stdin is not None
    assert page.node.stdout is not None
    page.node.stdin.write('[{"type": "from.the.future", "seq": 1}, {"type": "constructor"}]\n')
    page.node.stdin.flush()
    assert json.loads(page.node.stdout.readline()) == expected([]) * 3


@pytest.mark.parametrize(
    "text",
    [
        "word " * 30,
        "😀" * 150,
        "a" * 99 + " b",
        "\u202e" * 20 + "x",
        "\x1b[31m \x00 \u2066",
        "see @a\n\n[Attached by the user: a, 1 line]\nx",
    ],
)
def test_a_title_is_cut_and_cleaned_alike(page, text):
    said = ev.InputReceived(id="i1", message=user(text), delivery="submit")
    events: list[ev.Event] = [said, ev.SessionRenamed(title=text * 3), said]
    assert page.views(events) == expected(events)
