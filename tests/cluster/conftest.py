"""Fixtures of the tests about the cluster; makes `gateway_kit` importable from them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_kit import Cluster, cluster

sys.path.append(str(Path(__file__).parents[1] / "gateway"))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def known() -> Iterator[Cluster]:
    """A cluster on an empty database."""
    with cluster() as found:
        yield found
