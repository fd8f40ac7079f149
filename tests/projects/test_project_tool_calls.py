"""Calls of a project's tools, with real Node.js, real QuickJS and a real sandbox."""

from __future__ import annotations

import http.server
import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tools_kit import GUIDE, AgentFolder

from lmagent.core.errors import ToolError


@pytest.fixture
def agent(tmp_path: Path) -> AgentFolder:
    return AgentFolder(tmp_path)


@pytest.fixture(params=["node", "quickjs"])
def script(request: pytest.FixtureRequest, tmp_path: Path) -> AgentFolder:
    """A folder whose JavaScript is run by the one engine, then by the other."""
    if request.param == "node" and shutil.which("node") is None:
        pytest.skip("needs node")
    return AgentFolder(tmp_path, request.param)


def refused(agent: AgentFolder, name: str, **arguments: object) -> str:
    with pytest.raises(ToolError) as failure:
        agent.call(name, **arguments)
    return failure.value.message


def test_the_tools_of_the_guide_run_byte_for_byte(script: AgentFolder) -> None:
    for file in sorted(GUIDE.glob("*.js")):
        script.add(f"tools/{file.name}", file.read_text())
        assert (script.folder / "tools" / file.name).read_bytes() == file.read_bytes()
    assert script.found.facts == (
        "calculator(expression): inferred from its code (tools/calculator.js)",
        'execute_code(language, code, input?=""): inferred from its code (tools/execute_code.js)',
        "search_papers(query, limit?=5): inferred from its code (tools/search_papers.js)",
    )
    assert script.call("calculator", expression="6 * 7") == '{"result":42}'
    assert refused(script, "calculator", expression="6 *") == "calculator failed: Invalid calculation"
    papers = json.loads(script.call("search_papers", query="owls", limit="3"))
    assert papers["results"][0]["title"] == "Research on owls"
    assert script.call("execute_code", language="python", code="1") == '{"output":"Code executed successfully"}'
    assert script.call("execute_code", language="c", code="1") == '{"output":"Unsupported language: c"}'


def test_results_are_text_or_json_and_output_follows_them(script: AgentFolder) -> None:
    script.add(
        "tools/echo.js",
        """
        const results = { text: "plain", list: [1, { a: null }, 2n] };
        module.exports = {
          name: "echo", description: "Echo.",
          execute({ what, say = "" }) { if (say) console.log(say, { a: 1 }); return results[what]; },
        };
        """,
    )
    assert script.call("echo", what="list") == '[1,{"a":null},"2"]'
    assert script.call("echo", what="none") == "(no result)"
    assert script.call("echo", what="text", say="\x1b[31mred").startswith("plain\n[printed]\nred {")
    long = script.call("echo", what="text", say="x" * 9000)
    assert len(long) < 2100
    assert long.startswith("plain\n[printed]\n…xxx")


def test_failures_name_the_error_and_its_line(script: AgentFolder) -> None:
    script.add(
        "tools/fails.js",
        "module.exports = {\n  name: 'fails', description: 'Fail.',\n  execute({ how }) {\n"
        "    if (how === 'error') throw new TypeError('no owl');\n"
        "    if (how === 'late') return new Promise((_, fail) => setTimeout(() => fail(new Error('late')), 20));\n"
        "    if (how === 'text') throw 'only text';\n"
        "    if (how === 'more') return { error: 'not found', code: 404 };\n"
        "    if (how === 'function') return () => 1;\n"
        "    if (how === 'cycle') { const a = {}; a.a = a; return a; }\n"
        "    return new Promise(() => {});\n  },\n};\n",
    )
    assert refused(script, "fails", how="error").startswith("fails failed: TypeError: no owl")
    assert refused(script, "fails", how="late").startswith("fails failed: Error: late")
    assert refused(script, "fails", how="text") == "fails failed: only text"
    assert refused(script, "fails", how="more") == 'fails failed: {"error":"not found","code":404}'
    assert "a function, which is no JSON" in refused(script, "fails", how="function")
    assert refused(script, "fails", how="cycle").startswith("fails failed: TypeError")
    never = refused(script, "fails", how="never")
    assert "without a result" in never or "never comes" in never


def test_a_tool_requires_files_of_its_project(script: AgentFolder) -> None:
    script.write("tools/lib/sum.js", "const { one } = require('../one.json'); exports.sum = (a, b) => a + b + one;")
    script.write("tools/one.json", '{"one": 1}')
    script.add(
        "tools/add.js",
        "const { sum } = require('./lib/sum');\n"
        "module.exports = { name: 'add', description: 'Add.', execute: ({ a, b = 2 }) => sum(a, b) };",
    )
    assert script.call("add", a=3) == "6"


def test_node_names_the_line_of_an_error(agent: AgentFolder) -> None:
    agent.add("tools/fails.js", "module.exports = {\n  execute() {\n    throw new TypeError('no owl'); } };")
    assert refused(agent, "fails") == "fails failed: TypeError: no owl (line 3)"


def test_node_offers_its_modules_and_those_of_the_project(agent: AgentFolder) -> None:
    agent.write("node_modules/owl/package.json", '{"main": "lib.js"}')
    agent.write("node_modules/owl/lib.js", "module.exports = () => 'hoo';")
    agent.write("elsewhere/bat/index.js", "module.exports = () => 'eek';")
    agent.gets(modules=(agent.folder / "elsewhere",))
    agent.add(
        "tools/sounds.js",
        "const { createHash } = require('node:crypto'), fs = require('fs'), path = require('path');\n"
        "module.exports = { name: 'sounds', description: 'Sound.', execute() {\n"
        "  const here = [process.cwd(), __dirname, process.env.LMAGENT_PROJECT];\n"
        "  const md5 = createHash('md5').update('').digest('hex');\n"
        "  return { owl: require('owl')(), bat: require('bat')(), md5, here,\n"
        "    text: fs.readFileSync('data.txt', 'utf8'),\n"
        "    own: path.basename(__filename), seen: fs.readdirSync(path.dirname(__dirname)) };\n} };",
    )
    (agent.workspace / "data.txt").write_text("data")
    agent.write(".env", "KEY=opensesame")
    (agent.folder / "link").symlink_to("/etc")
    found = json.loads(agent.call("sounds"))
    assert found == {
        "owl": "hoo",
        "bat": "eek",
        "md5": "d41d8cd98f00b204e9800998ecf8427e",
        "here": [str(agent.workspace), str(agent.folder / "tools"), str(agent.folder)],
        "text": "data",
        "own": "sounds.js",
        "seen": ["elsewhere", "node_modules", "tools"],
    }


def test_without_node_its_modules_are_named_as_missing(tmp_path: Path) -> None:
    agent = AgentFolder(tmp_path, "quickjs")
    agent.add(
        "tools/reads.js",
        "module.exports = { name: 'reads', description: 'Read.', execute({ path }) {\n"
        "  return require('fs').readFileSync(path); } };",
    )
    said = refused(agent, "reads", path="a")
    assert "require('fs') needs Node.js, which is not installed here" in said


def test_timers_and_promises_run_in_order(script: AgentFolder) -> None:
    script.add(
        "tools/order.js",
        """
        module.exports = { name: "order", description: "Order.", async execute() {
          const seen = [];
          const later = ms => new Promise(done => setTimeout(() => { seen.push(ms); done(); }, ms));
          const stopped = setTimeout(() => seen.push("stopped"), 10);
          clearTimeout(stopped);
          await Promise.all([later(40), later(5)]);
          return seen;
        } };
        """,
    )
    assert script.call("order") == "[5,40]"


PYTHON = '''
from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

from lmagent import tool


@dataclass
class Stop:
    city: str
    nights: int = 1


def _helper() -> str:
    return "help"


@tool
async def trip(stops: list[Stop], start: Stop | None = None, how: Literal["train", "bus"] = "train") -> dict:
    """Plan a trip.

    Args:
        how: the means
    """
    await asyncio.sleep(0)
    print("planning")
    nights = sum(stop.nights for stop in stops)
    return {"nights": nights, "first": start.city if start else stops[0].city, "how": how}
'''


def test_a_python_function_gets_dataclasses_and_defaults(agent: AgentFolder) -> None:
    agent.add("tools/trip.py", PYTHON)
    stop = {"type": "object", "required": ["city"], "additionalProperties": False}
    stop["properties"] = {"city": {"type": "string"}, "nights": {"type": "integer"}}
    assert agent.schema("trip")["properties"] == {
        "stops": {"type": "array", "items": stop},
        "start": stop,
        "how": {"type": "string", "enum": ["train", "bus"], "default": "train", "description": "the means"},
    }
    said = agent.call("trip", stops=[{"city": "Rome", "nights": "2"}, {"city": "Oslo"}], start=None, how="Bus")
    assert said == '{"nights": 3, "first": "Rome", "how": "bus"}\n[printed]\nplanning'
    assert agent.call("trip", stops=[{"city": "Rome"}], start={"city": "Bern"}).startswith(
        '{"nights": 1, "first": "Bern"'
    )


def test_a_python_tool_imports_the_project_and_its_packages_and_nothing_else(agent: AgentFolder) -> None:
    agent.write("shared.py", "WORD = 'own'")
    agent.write("packages/owls/__init__.py", "WORD = 'package'")
    agent.gets(libraries=(agent.folder / "packages",))
    agent.add("tools/words.py", "import owls, shared\ndef words() -> list:\n    return [owls.WORD, shared.WORD]\n")
    assert agent.call("words") == '["package", "own"]'
    agent.add("tools/alien.py", "import msgspec\ndef alien() -> str:\n    return 'here'\n")
    assert "ModuleNotFoundError: No module named 'msgspec' (line 1)" in refused(agent, "alien")


def test_failures_of_python_name_the_error_and_its_line(agent: AgentFolder) -> None:
    agent.add(
        "tools/fails.py",
        "import sys\ndef fails(how: str):\n    print('on the way')\n"
        "    if how == 'error': raise KeyError('owl')\n    if how == 'exit': sys.exit('gone')\n"
        "    return {'error': 'not found'}\n",
    )
    assert refused(agent, "fails", how="error") == "fails failed: KeyError: 'owl' (line 4)\n[printed]\non the way"
    assert refused(agent, "fails", how="exit") == "fails failed: SystemExit: gone (line 5)\n[printed]\non the way"
    assert refused(agent, "fails", how="value") == "fails failed: not found\n[printed]\non the way"


def test_a_program_gets_its_arguments_on_standard_input(agent: AgentFolder) -> None:
    agent.write(
        "tools/upper.json",
        json.dumps({"description": "Shout.", "parameters": {"text": "string"}, "command": ["tools/upper.sh"]}),
    )
    agent.add("tools/upper.sh", "#!/bin/sh\ntr a-z A-Z\necho noted >&2\n")
    assert (
        agent.call("upper", text="owl " * 100_000)
        == json.dumps({"text": "owl " * 100_000}).upper() + "\n[printed]\nnoted"
    )


def test_a_program_that_fails_is_an_error_with_the_end_of_its_errors(agent: AgentFolder) -> None:
    agent.write("tools/fails.json", '{"command": ["bash", "./tools/fails.sh"]}')
    agent.add("tools/fails.sh", "echo part\nseq 1 2000 >&2\necho 'no owl' >&2\nexit 3\n")
    said = refused(agent, "fails")
    assert said.startswith("fails failed: exit code 3\n[printed]\n…")
    assert said.endswith("2000\nno owl")


def test_arguments_that_do_not_fit_are_named_before_anything_starts(agent: AgentFolder) -> None:
    agent.add(
        "tools/write.js",
        "module.exports = { name: 'write_it', description: 'Write.', execute() {\n"
        "    require('fs').writeFileSync('ran', ''); },\n"
        "  parameters: { type: 'object', required: ['n'], additionalProperties: false, properties: {\n"
        "    n: { type: 'integer', minimum: 1, maximum: 9 },\n"
        "    tags: { type: 'array', items: { type: 'string' }, maxItems: 2 },\n"
        "    at: { type: 'object', properties: { x: { type: 'number' } }, required: ['x'] } } } };",
    )
    for arguments, fault in (
        ({"n": "many"}, "n: 'many' is not of type 'integer'"),
        ({"n": 12}, "n: 12 is greater than the maximum of 9"),
        ({"n": 1, "tags": ["a", "b", "c"]}, "tags: ['a', 'b', 'c'] is too long"),
        ({"n": 1, "tags": ["a", {}]}, "tags[1]: {} is not of type 'string'"),
        ({"n": 1, "at": {}}, "at: 'x' is a required property"),
        ({"n": 1, "at": {"x": "far"}}, "at.x: 'far' is not of type 'number'"),
        ({}, "missing n"),
        ({"n": 1, "m": 2}, "has no argument 'm'"),
    ):
        assert fault in refused(agent, "write", **arguments)
    assert not (agent.workspace / "ran").exists()
    assert agent.call("write", n="3", tags="one", at=None) == "(no result)"
    assert (agent.workspace / "ran").exists()


def test_a_tool_gets_the_variables_of_its_agent_and_no_others(
    agent: AgentFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_KEY", "hidden")
    agent.gets(env={"OWL_KEY": "hoo"})
    agent.add("tools/env.py", "import os\ndef env() -> str:\n    return str(sorted(os.environ))\n")
    names = agent.call("env")
    assert "'OWL_KEY'" in names
    assert "OTHER_KEY" not in names
    assert "LMAGENT_CHANNEL" not in names


class _Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        text = f"answer to {self.path}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def answering(certificates: Path | None = None) -> Iterator[int]:
    """Run a server on loopback, with TLS if there is a folder for a certificate; yields its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    if certificates is not None:
        key, certificate = certificates / "key.pem", certificates / "cert.pem"
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


FETCHES = """
const http = require("http"), https = require("https");
const got = (module, url) => new Promise((done, fail) => module.get(url, { rejectUnauthorized: false }, answer => {
  let text = "";
  answer.on("data", piece => text += piece);
  answer.on("end", () => done(text));
}).on("error", fail));
module.exports = { name: "fetches", description: "Fetch.", async execute({ plain, secure, other }) {
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
  const other_ = await fetch(other).catch(error => String(error.cause && error.cause.message || error.message));
  return [await (await fetch(plain + "/a")).text(), await (await fetch(secure + "/b")).text(),
    await got(http, plain + "/c"), await got(https, secure + "/d"), other_];
} };
"""


def test_the_hosts_that_an_agent_names_are_reached_and_no_others(agent: AgentFolder, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    with answering() as plain, answering(tmp_path) as secure:
        agent.gets(hosts=(f"localhost:{plain}", f"localhost:{secure}"))
        agent.add("tools/fetches.js", FETCHES)
        agent.add(
            "tools/gets.py",
            "from urllib.request import urlopen\ndef gets(url: str) -> str:\n    return urlopen(url).read().decode()\n",
        )
        said = agent.call(
            "fetches",
            plain=f"http://localhost:{plain}",
            secure=f"https://localhost:{secure}",
            other="https://owls.example/",
        ).partition("\n")[0]
        assert json.loads(said)[:4] == [f"answer to /{path}" for path in "abcd"]
        assert "owls.example:443 cannot be reached: 403" in json.loads(said)[4]
        assert agent.call("gets", url=f"http://localhost:{plain}/e") == "answer to /e"
        assert "403" in refused(agent, "gets", url="http://owls.example/")
