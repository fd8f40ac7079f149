"""compose.cluster.yaml and examples/kubernetes as text: the code, the image or another file has each name in them.

tests/cluster/test_cluster_containers.py runs the compose file.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from click.testing import CliRunner

from lmagent.cli.main import COMMANDS
from lmagent.cli.worker import worker
from lmagent.config.settings import SETTINGS
from lmagent.gateway.http.access import ROUTES

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "examples" / "kubernetes"
COMPOSE = yaml.safe_load((ROOT / "compose.cluster.yaml").read_text())
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", "")
AGENT = re.split(r"^FROM ", DOCKERFILE.partition(" AS agent\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
ENTRY = cast("list[str]", json.loads(re.findall(r"^ENTRYPOINT (.*)$", AGENT, re.MULTILINE)[0]))
VARIABLES = {name for setting in SETTINGS for name in setting.variables}
POSTGRES = {"POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD", "PGDATA"}
"""Variables of PostgreSQL's official image."""

FILES = sorted(path for path in KUBERNETES.iterdir() if ".yaml" in path.suffixes)
OBJECTS = [one for path in FILES for one in yaml.safe_load_all(path.read_text())]
SERVICES = [name for name in COMPOSE["services"] if name != "postgres"]


def of_kind(*kinds: str) -> dict[str, Any]:
    """Return the Kubernetes objects of these kinds by their names."""
    return {one["metadata"]["name"]: one for one in OBJECTS if one["kind"] in kinds}


PODS = {name: one["spec"]["template"] for name, one in of_kind("Deployment", "StatefulSet", "Job").items()}
OURS = [name for name in PODS if name != "postgres"]


def container(pod: str) -> dict[str, Any]:
    (only,) = PODS[pod]["spec"]["containers"]
    return only


def sources(pod: str) -> list[dict[str, Any]]:
    """Return the config maps and secrets from which a pod has its variables."""
    kinds = {"configMapRef": "ConfigMap", "secretRef": "Secret"}
    given = [item for source in container(pod)["envFrom"] for item in source.items()]
    return [of_kind(kinds[kind])[named["name"]] for kind, named in given]


def variables(pod: str) -> dict[str, str]:
    own = {one["name"]: one["value"] for one in container(pod).get("env", ())}
    return {
        **own,
        **{name: value for one in sources(pod) for name, value in (one.get("data") or one["stringData"]).items()},
    }


def command_of(service: Mapping[str, Any]) -> list[str]:
    return [*service.get("entrypoint", ENTRY), *service.get("command", ())]


def commands() -> Iterator[Any]:
    for name in SERVICES:
        yield pytest.param(command_of(COMPOSE["services"][name]), id=f"compose {name}")
    for name in OURS:
        given = container(name)
        yield pytest.param([*given.get("command", ENTRY), *given.get("args", ())], id=f"kubernetes {name}")
    checks = [
        COMPOSE["services"]["worker"]["healthcheck"]["test"],
        container("lmagent-worker")["startupProbe"]["exec"]["command"],
    ]
    for check in checks:
        yield pytest.param(shlex.split(check[-1].partition("|")[0]), id="check of a worker")


@pytest.mark.parametrize("argv", list(commands()))
def test_the_program_has_each_command_with_its_options(argv: list[str]) -> None:
    assert argv[0] == "lmagent"
    module, _, name = COMMANDS[argv[1]][0].partition(":")
    shown = CliRunner().invoke(getattr(import_module(module), name), [*argv[2:], "--help"])
    assert shown.exit_code == 0, shown.output
    assert all(word in shown.output for word in argv[2:3] if not word.startswith("-")), shown.output


def test_each_variable_is_a_setting_or_one_of_postgresqls_image() -> None:
    for name in SERVICES:
        assert set(COMPOSE["services"][name]["environment"]) <= VARIABLES
    assert set(COMPOSE["services"]["postgres"]["environment"]) <= POSTGRES
    for name in OURS:
        assert set(variables(name)) <= VARIABLES
    assert set(variables("postgres")) <= POSTGRES


def test_the_label_names_the_workspace_of_the_gateways_and_the_folder_that_is_mounted() -> None:
    compose = COMPOSE["services"]["worker"]
    label = compose["command"][compose["command"].index("--label") + 1]
    name, _, path = label.partition("=")
    assert {COMPOSE["services"][one]["environment"]["LMAGENT_CLUSTER_WORKSPACE"] for one in SERVICES} == {name}
    assert [volume.endswith(f":{path}") for volume in compose["volumes"]].count(True) == 1
    pod = container("lmagent-worker")
    name, _, path = pod["args"][pod["args"].index("--label") + 1].partition("=")
    assert variables("lmagent-gateway")["LMAGENT_CLUSTER_WORKSPACE"] == name
    assert path in [mount["mountPath"] for mount in pod["volumeMounts"]]


def test_a_worker_has_longer_to_end_than_its_turns() -> None:
    (default,) = [option.default for option in worker.params if option.name == "grace"]
    assert isinstance(default, float)
    assert int(COMPOSE["services"]["worker"]["stop_grace_period"].removesuffix("s")) >= default + 15
    args = container("lmagent-worker")["args"]
    assert PODS["lmagent-worker"]["spec"]["terminationGracePeriodSeconds"] >= int(args[args.index("--grace") + 1]) + 15


def test_the_port_is_that_of_the_image_and_the_probes_ask_an_open_route() -> None:
    port = int(ENTRY[ENTRY.index("--port") + 1])
    assert f"EXPOSE {port}" in AGENT
    for name in ("gateway-1", "gateway-2"):
        (published,) = COMPOSE["services"][name]["ports"]
        assert re.fullmatch(rf"127\.0\.0\.1:\$\{{LMAGENT_WEB_PORT(_2)?:-\d+\}}:{port}", published)
    gateway = container("lmagent-gateway")
    assert gateway["ports"] == [{"name": "http", "containerPort": port}]
    for probe in ("readinessProbe", "livenessProbe"):
        asked = gateway[probe]["httpGet"]
        assert asked["port"] == "http"
        assert [route.is_open for route in ROUTES if route.path == asked["path"]] == [True]
    (service,) = of_kind("Service")["lmagent"]["spec"]["ports"]
    assert service["targetPort"] == "http"
    assert [rule["ports"] for rule in of_kind("NetworkPolicy")["gateways"]["spec"]["ingress"]] == [[{"port": port}]]


@pytest.mark.parametrize("name", list(COMPOSE["services"]))
def test_each_service_is_hardened_and_only_gateways_are_published(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert ("ports" in service) is name.startswith("gateway")


@pytest.mark.parametrize("name", list(PODS))
def test_each_pod_is_hardened(name: str) -> None:
    pod, given = PODS[name]["spec"], container(name)["securityContext"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert given["readOnlyRootFilesystem"] is True
    assert (given["allowPrivilegeEscalation"], given["capabilities"]) == (False, {"drop": ["ALL"]})
    if name in OURS:
        assert f"useradd --uid {pod['securityContext']['runAsUser']} " in AGENT


def test_the_image_has_the_extra_of_the_cluster() -> None:
    for name in SERVICES:
        build = COMPOSE["services"][name]["build"]
        assert build["target"] == "agent"
        assert "cluster" in build["args"]["EXTRAS"].split(",")


def test_all_names_in_the_kubernetes_objects_lead_to_another_object() -> None:
    labels = {name: pod["metadata"]["labels"] for name, pod in PODS.items()}
    for name, one in of_kind("Deployment", "StatefulSet").items():
        assert one["spec"]["selector"]["matchLabels"].items() <= labels[name].items()
    services = of_kind("Service")
    for one in services.values():
        assert [one["spec"]["selector"].items() <= given.items() for given in labels.values()].count(True) == 1
    for one in of_kind("NetworkPolicy").values():
        chosen = one["spec"]["podSelector"].get("matchLabels", {}).items()
        assert any(chosen <= given.items() for given in labels.values())
    assert [name for name, given in labels.items() if given.get("database") == "client"] == OURS
    claims = of_kind("PersistentVolumeClaim")
    for pod in (pod["spec"] for pod in PODS.values()):
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        mounts = {mount["name"] for one in pod["containers"] for mount in one["volumeMounts"]}
        assert mounts - volumes.keys() <= {"data"}  # that of the stateful set is made from its template
        assert all(
            volume["persistentVolumeClaim"]["claimName"] in claims
            for volume in volumes.values()
            if "persistentVolumeClaim" in volume
        )
    assert of_kind("StatefulSet")["postgres"]["spec"]["serviceName"] in services
    host = variables("lmagent-worker")["LMAGENT_CLUSTER_URL"].partition("@")[2].partition(":")[0]
    assert host in services
    assert {one["metadata"].get("namespace", "lmagent") for one in OBJECTS} == set(of_kind("Namespace"))


def test_each_kubernetes_file_says_that_it_was_not_run() -> None:
    assert len(FILES) == 8
    for path in (*FILES, KUBERNETES / "README.md"):
        assert "NOT RUN" in path.read_text().partition("\n\n")[0]
