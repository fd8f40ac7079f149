"""Requests to the demo model that its training has not seen, in the real loop, with what is on disk afterwards.

    python bench/demo.py [--quick] [--requests N] [--temperature T] [--model FILE] [--wrong]

The model file of the package is loaded by the real llama.cpp engine (`xllamacpp`); each request is a session of a real
host with the real tools, permission `auto` and the sandbox that the settings choose. A request is right when the
workspace holds exactly what it should, the tools that ran are those that should, the turn ended as it should, and the
answer says what it must (`tools/demo_model/heldout.py`). Half of the requests are put in ways that were not trained on.
`handwritten` counts everyday sentences beside them; they are not part of the bar.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from testkit.engine import EngineServer

BAR = 0.95
REQUESTS = 400
PACKED = Path(__file__).parents[1] / "src" / "lmagent" / "demo" / "demo.gguf"


async def measure(model: Path, requests: int, temperature: float) -> tuple[dict[str, Any], list[Any]]:
    """The figures, and the verdicts."""
    from demo_model import drive, handwritten, heldout

    known = heldout.seen()
    cases = list(heldout.cases(requests, known))
    written = list(handwritten.cases(known))
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "demo.gguf"
        copy.write_bytes(model.read_bytes())
        with EngineServer(copy) as engine:
            judge = partial(drive.judge, url=engine.base_url, workspace=Path(folder) / "ws", temperature=temperature)
            verdicts = await judge(cases)
            others = await judge(written)
    right = [verdict for verdict in verdicts if not verdict.wrong]

    def table(key: Any) -> dict[str, str]:
        of, good = Counter(map(key, verdicts)), Counter(map(key, right))
        return {name: f"{good[name]}/{of[name]}" for name in sorted(of)}

    figures = {
        "requests": len(verdicts),
        "right": len(right),
        "by_kind": table(lambda verdict: verdict.case.request.kind),
        "by_phrasing": table(lambda verdict: verdict.case.phrasing),
        "handwritten": f"{sum(not verdict.wrong for verdict in others)}/{len(others)}",
        "temperature": temperature,
        "ok": len(right) >= BAR * len(verdicts),
    }
    return figures, [verdict for verdict in (*verdicts, *others) if verdict.wrong]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="60 requests")
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--temperature", type=float, default=0.0, help="default: 0, as in `lmagent demo`")
    parser.add_argument("--model", type=Path, default=PACKED)
    parser.add_argument("--wrong", action="store_true", help="show on stderr what went wrong")
    chosen = parser.parse_args()
    run = partial(measure, chosen.model, 60 if chosen.quick else chosen.requests, chosen.temperature)
    figures, wrong = anyio.run(run)
    if chosen.wrong:
        for verdict in wrong:
            request = verdict.case.request
            print(f"{request.kind}: {request.text!r}: {verdict.wrong}; answer {verdict.answer!r}", file=sys.stderr)
    print(json.dumps(figures))
    sys.exit(0 if figures["ok"] else 1)


if __name__ == "__main__":
    main()
