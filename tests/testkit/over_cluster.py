"""A plugin of pytest (`-p testkit.over_cluster`): the gateways of `gateway_kit` are a cluster's, each with a worker."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "gateway"))

import clustered_kit
import gateway_kit

gateway_kit.Running = clustered_kit.Clustered
