"""agent.yaml: what a project says becomes an agent, and what it says wrong is named with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmagent.core.agent import NamedAgent
from lmagent.core.errors import ConfigError
from lmagent.projects.load import agent_of, load_folder

LIBRARIAN = """\
# agent.yaml
version: "1.0"
name: "Old Librarian"
type: "knowledge"

model:
  provider: "local"  # the server that is set
  model_id: "somebody/Some-Model-8B"
  \n\
parameters:
  temperature: 0.3
  max_tokens: 1500      # of a reply
  top_p: 0.9
  frequency_penalty: 0.1

memory:
  type: "context_window"
  retention_size: 20

system_prompt: |
  You are a librarian.
  Name your sources.

personality:
  tone: "dry and exact"
  interests: ["maps", "indexes"]

tools:
  - name: "find_book"
    path: "./tools/find_book.js"
    enabled: true
  - name: "read_file"
    enabled: false
  - grep

logging:
  level: "info"
api:
  url: "http://localhost:1234/v1"
gpu:
  n_gpu_layers: 32
  flash_attn: true
network:
  hosts: [books.example.org]
permissions:
  mode: manual
  deny: ["read(secret/**)"]
limits: {steps: 12}
"""


def agent(folder: Path, text: str, **files: str) -> NamedAgent:
    folder.mkdir(exist_ok=True)
    (folder / "agent.yaml").write_text(text)
    for name, content in files.items():
        (folder / "prompts").mkdir(exist_ok=True)
        (folder / "prompts" / f"{name}.yaml").write_text(content)
    return agent_of(load_folder(folder))


def test_all_that_a_project_says_reaches_its_agent(tmp_path: Path) -> None:
    made = agent(tmp_path, LIBRARIAN)
    assert (made.name, made.model, made.keep_turns, made.mode, made.steps) == (
        "old-librarian",
        "somebody/Some-Model-8B",
        20,
        "manual",
        12,
    )
    assert made.system == (
        "You are a librarian.\nName your sources.\n\n"
        "Your personality:\n- tone: dry and exact\n- interests: maps, indexes"
    )
    given = {name: getattr(made.options, name) for name in ("temperature", "max_tokens", "top_p", "frequency_penalty")}
    assert given == {"temperature": 0.3, "max_tokens": 1500, "top_p": 0.9, "frequency_penalty": 0.1}
    assert made.tools == ("find_book", "grep")
    assert made.allow == ("effect:net(books.example.org)",)
    assert made.deny == ("read(secret/**)",)


@pytest.mark.parametrize(
    ("kind", "tools"),
    [("conversational", ()), ("task-oriented", None), ("creative", ("read", "write", "edit", "glob", "grep", "ls"))],
)
def test_an_agent_without_a_list_of_tools_has_those_of_its_type(tmp_path: Path, kind: str, tools: object) -> None:
    assert agent(tmp_path, f"name: x\ntype: {kind}\n").tools == tools


def test_a_prompt_file_wins_over_the_system_prompt(tmp_path: Path) -> None:
    assert agent(tmp_path, "name: x\nsystem_prompt: first\n", system="content: second\n").system == "second"


def test_templates_are_filled_in_with_variables_and_other_files(tmp_path: Path) -> None:
    made = agent(
        tmp_path,
        "name: Ada\nvariables: {place: Rome}\nprompts: {system: main.v2}\n",
        **{
            "main.v2": "version: 2\nvariables: {place: Paris, time: noon}\ncontent: |\n"
            "  {{ agent_name }} is in {{place}} at {{time}}. \\{{kept}}\n  {{> rules}}\n",
            "rules": "content: Be {{ how }}.\nvariables: {how: kind}\n",
            "user_template": "content: 'Question: {{user_input}} ({{place}})'\n",
        },
    )
    assert made.system == "Ada is in Rome at noon. {{kept}}\nBe kind."
    assert made.template == "Question: {{user_input}} (Rome)"
    assert load_folder(tmp_path).versions == {"prompts/main.v2.yaml": "2", "prompts/user_template.yaml": "1"}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("system", "content: |\n  One\n  {{ plce }}\n", "prompts/system.yaml:3: there is no variable 'plce'"),
        ("system", "content: '{{> gone}}'\n", "prompts/system.yaml:1: there is no prompts/gone.yaml"),
        ("system", "content: '{{> system}}'\n", "prompts/system.yaml:1: 'system' includes itself"),
        ("system", "content: '{{> ../agent}}'\n", "prompts/system.yaml:1: there is no prompts/../agent.yaml"),
        ("system", "contents: x\n", "prompts/system.yaml:1:1: there is no key 'contents' here"),
        ("user_template", "content: hello\n", "must contain {{user_input}} once"),
    ],
)
def test_a_wrong_template_is_named_with_its_line(tmp_path: Path, name: str, content: str, said: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        agent(tmp_path, "name: x\nvariables: {place: Rome}\n", **{name: content})
    assert said in wrong.value.message
    assert wrong.value.fix


BROKEN = [
    ("paramters: {temperature: 1}", "2:1: there is no key 'paramters' here", "did you mean parameters?"),
    ("parameters:\n  temprature: 1", "3:3: there is no key 'temprature' here", "did you mean temperature?"),
    ("parameters:\n  temperature: hot", "3:3: temperature: expected a number, got text", ""),
    ("parameters:\n  temperature: 9", "3:3: temperature: expected a number <= 5", ""),
    ("parameters:\n  max_tokens: 0", "3:3: max_tokens: expected a whole number >= 1", ""),
    ("parameters:\n  max_tokens: 1.5", "3:3: max_tokens: expected a whole number, got a number", ""),
    ("parameters:\n  top_p: true", "3:3: top_p: expected a number, got true or false", ""),
    ("parameters: 3", "2:1: parameters: expected keys and values, got a whole number", ""),
    ("parameters:\n  seed: -1", "3:3: seed: expected a whole number >= 0", ""),
    ("parameters:\n\n\n  topp: 1", "5:3: there is no key 'topp' here", "did you mean top_p?"),
    ("type: convo", "2:1: type: 'convo' is not known", "did you mean conversational?"),
    ("type: [creative]", "2:1: type: expected text, got a list", ""),
    ("name: y", "2:1: the key 'name' is here twice", "keep one of them"),
    ("tools:\n  - nam: y", "3:5: there is no key 'nam' here", "did you mean name?"),
    ("tools:\n  - path: ./tools/a.js", "3:5: the key 'name' is missing here", "add name: …"),
    ("tools:\n  - name: y\n    enabled: yes", "4:5: enabled: expected true or false, got text", ""),
    ("tools:\n  - name: a b", "3:5: name: the text has not the right form", "write letters, digits, _ and -"),
    ("tools:\n  - name: y\n  - name: y", "4:5: two tools are named 'y'", "rename one of them"),
    ("tools: file_reader", "2:1: tools: expected a list, got text", ""),
    ("tools:\n  file_reader: {}", "2:1: tools: expected a list, got keys and values", ""),
    ("tools:\n  - name: y\n    timeout: 0", "4:5: timeout: expected a number > 0", ""),
    ("tools:\n  - name: y\n    parameters: [a]", "4:5: parameters: expected keys and values, got a list", ""),
    ("model: {modelid: x}", "2:9: there is no key 'modelid' here", "did you mean model_id?"),
    ("model: [x]", "2:1: model: expected text or keys and values, got a list", ""),
    ("model:\n  context_window: big", "3:3: context_window: expected a whole number, got text", ""),
    ("memory: {retention_size: -1}", "2:10: retention_size: expected a whole number >= 1", ""),
    ("memory: {type: contextwindow}", "2:10: type: 'contextwindow' is not known", "did you mean context_window?"),
    ("memory: long_term", "2:1: memory: expected keys and values, got text", ""),
    ("logging: {level: loud}", "2:11: level: 'loud' is not known", "it can be: "),
    ("logging:\n  levle: info", "3:3: there is no key 'levle' here", "did you mean level?"),
    ("api: {url: 'ftp://x'}", "2:7: url: the text has not the right form", "http://"),
    ("api: {key: sk-123}", "2:7: there is no key 'key' here", ""),
    ("gpu: {n_gpu_layers: all}", "2:7: n_gpu_layers: expected a whole number, got text", ""),
    ("gpu: {flash_attention: true}", "2:7: there is no key 'flash_attention' here", "did you mean flash_attn?"),
    ("personality:\n  tone: 3", "3:3: tone: expected text or a list, got a whole number", ""),
    ("permissions: {mode: yolo}", "2:15: mode: 'yolo' is not known", "it can be: auto, manual, normal"),
    ("permissions: {allow: shell}", "2:15: allow: expected a list, got text", ""),
    ("limits: {step: 3}", "2:10: there is no key 'step' here", "did you mean steps?"),
    ("network: {hosts: ['http://a.b/']}", "2:19: hosts: the text has not the right form", "a host such as"),
    ("env:\n  lower-case: {}", "3:3: 'lower-case' cannot be a key here", "use letters, digits and _"),
    ("env:\n  KEY: {secert: true}", "3:9: there is no key 'secert' here", "did you mean secret?"),
    ("env:\n  KEY: {secret: true, default: x}", "3:23: KEY is a secret, and has a default", "remove it"),
    ("variables:\n  year: 2024", "3:3: year: expected text, got a whole number", ""),
    ("prompts: {system: gone}", "2:11: there is no prompts/gone.yaml", "correct the name"),
    ("version: '2'", "2:1: version 2 is not known", 'write version: "1.0"'),
    ("description: [a]", "2:1: description: expected text, got a list", ""),
    ("\tversion: 1", "2:1: not valid YAML", "correct the YAML there"),
    ("tools: [a", "3:1: not valid YAML", "correct the YAML there"),
    ("system_prompt: 'open", "3:1: not valid YAML", "correct the YAML there"),
    ("a: &b c", "2:4: anchors (&) and aliases (*) are not read", ""),
    ("description: *x", "2:14: anchors (&) and aliases (*) are not read", ""),
    ("description: !!python/object:os.system x", "2:14: not valid YAML", "correct the YAML there"),
    ("? [a, b]\n: c", "2:3: a key must be a text", ""),
    ("<<: {description: x}", "2:1: a key must be a text", ""),
    ("---\nname: y", "2:1: not valid YAML", ""),
]


@pytest.mark.parametrize(("lines", "said", "fix"), BROKEN, ids=[lines for lines, _, _ in BROKEN])
def test_a_broken_file_is_named_with_its_line_and_what_is_meant(
    tmp_path: Path, lines: str, said: str, fix: str
) -> None:
    with pytest.raises(ConfigError) as wrong:
        agent(tmp_path, f"name: x\n{lines}\n")
    assert wrong.value.message.startswith(f"agent.yaml:{said}")
    assert fix in wrong.value.fix
    assert wrong.value.fix


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "agent.yaml:1:1: the key 'name' is missing here"),
        (b"- a\n", "agent.yaml:1:1: the file: expected keys and values, got a list"),
        (b"name: x\ndescription: \xff\n", "agent.yaml:2: the file is not UTF-8"),
        (b"name: x\npersonality: " + b"[" * 40 + b"]" * 40, "agent.yaml:2:"),
        (b"name: x\n" + b"#" * 2_000_000, "agent.yaml"),
        (b"name: '***'\n", "agent.yaml:1:1: name: the text has not the right form"),
        (b"name: lmagent\n", "agent.yaml:1:1: 'lmagent' cannot be an agent's name"),
    ],
)
def test_a_file_that_is_no_agent_yaml_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "agent.yaml").write_bytes(content)
    with pytest.raises(ConfigError) as wrong:
        load_folder(tmp_path)
    assert wrong.value.message.startswith(said)


def test_a_project_reads_no_file_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside.yaml").write_text("content: secret\n")
    (tmp_path / "project" / "prompts").mkdir(parents=True)
    (tmp_path / "project" / "agent.yaml").write_text("name: x\n")
    (tmp_path / "project" / "prompts" / "system.yaml").symlink_to(tmp_path / "outside.yaml")
    with pytest.raises(ConfigError, match=r"prompts/system\.yaml"):
        load_folder(tmp_path / "project")


def test_a_folder_that_is_no_project_is_told_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as wrong:
        load_folder(tmp_path)
    assert "lmagent agent init" in wrong.value.fix
