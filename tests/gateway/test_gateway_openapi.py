"""The description of the API, and whether the gateway keeps to it: requests made from it, judged by it.

`LMAGENT_EXAMPLES=200` makes more of them than the few that every check makes.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from typing import Any

import pytest
import schemathesis
from gateway_kit import Running, gateway
from hypothesis import HealthCheck, settings
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from lmagent.gateway.http.app import TABLE
from lmagent.gateway.http.openapi import describe
from lmagent.testing.script import say

load_all_checks()
EXAMPLES = int(os.environ.get("LMAGENT_EXAMPLES", "2"))
MORE = "LMAGENT_EXAMPLES" in os.environ
MANY, THINNED = 30, 16
"""Requests of a route that are all made, and of how many more one is: of commands there are 1,000."""

made: Counter[str] = Counter()
ENDLESS = {route.path for route in TABLE if route.media == "text/event-stream"}
"""Streams that end when the client goes; the tests of the events are about them."""

LASTING = {"/api/models/server"}
"""What it starts outlives the gateway; its own test ends it."""

DESCRIPTION = describe([route for route in TABLE if route.path not in ENDLESS | LASTING])
pytestmark = pytest.mark.filterwarnings("default")  # of the tool's own libraries


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with gateway(tmp_path_factory.mktemp("openapi"), lambda _: say("Hello."), HF_ENDPOINT="http://127.0.0.1:9") as made:
        yield made


def test_every_route_is_described_with_what_it_takes_and_answers(running: Running):
    told = running.anyone.ask("GET", "/openapi.json").json
    assert told["openapi"].startswith("3.1")
    for route in TABLE:
        operation = told["paths"][route.path.replace(":path", "")][route.method.lower()]
        assert operation["summary"]
        assert str(route.status) in operation["responses"]
        assert (operation["security"] == []) == route.is_open
        assert ("requestBody" in operation) == (route.body is not None or route.raw)
        refused = operation["responses"]["default"]["content"]["application/json"]
        assert refused["schema"] == {"$ref": "#/components/schemas/Failure"}
    names = [operation["operationId"] for methods in told["paths"].values() for operation in methods.values()]
    assert len(names) == len(set(names)) == len(TABLE)
    assert set(told["components"]["securitySchemes"]) == {"token", "page"}
    assert set(re.findall(r'"\$ref": ?"([^"]+)"', json.dumps(told))) == {
        f"#/components/schemas/{name}" for name in told["components"]["schemas"]
    }


@pytest.fixture(params=DESCRIPTION["paths"])
def described(request: pytest.FixtureRequest) -> Any:
    """One path: requests for all of them, made while tests are collected, would take seconds in each worker."""
    request.node._nodeid = request.node.nodeid  # schemathesis 4.32 reads it; pytest 9.2 has another name for it
    return schemathesis.openapi.from_dict(DESCRIPTION | {"paths": {request.param: DESCRIPTION["paths"][request.param]}})


@schemathesis.pytest.from_fixture("described").parametrize()
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_answers_are_as_described_and_never_a_fault(case, running: Running):
    made[case.operation.label] += 1
    if made[case.operation.label] > MANY and made[case.operation.label] % THINNED and not MORE:
        return
    ask(case, running)
    if "session" in case.path_parameters:
        case.path_parameters["session"] = running.ask("POST", "/api/sessions", {}).json["session"]
        ask(case, running, negative_data_rejection)  # the request may have been wrong by its session alone


def ask(case, running: Running, *besides) -> None:
    answer = case.call(base_url=running.url, headers=running.headers, timeout=20)
    told = (answer.text[:500], running.said[-3:])
    assert answer.status_code < 500 or answer.status_code == 502, told  # 502: what the scripted model says is no plan
    if answer.status_code == 431:  # a head that is too long is refused before anything is compared with the description
        return
    # What a schema cannot say, such as whether bytes are an image, may refuse a request that fits it.
    case.validate_response(answer, excluded_checks=[positive_data_acceptance, not_a_server_error, *besides])


def test_the_gateway_said_nothing_of_faults(running: Running):
    assert not [line for line in running.said if "Error" in line]
