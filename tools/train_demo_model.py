"""Train the demo model from nothing and write it where the package ships it, with its checksum.

    python -m venv /tmp/demovenv
    /tmp/demovenv/bin/pip install torch==2.13.0 numpy gguf
    /tmp/demovenv/bin/python tools/train_demo_model.py [--out FILE]

One thread and about ten minutes of it. The data is made by the script (`demo_model/dialogues.py`), each dialogue is
seen once. The same seed gives the same file on the same kind of processor with the same torch; other processors round
differently. Matrix products are computed in bfloat16, which a processor without instructions for it does slowly.
torch is needed for nothing else; `bench/demo.py` judges the result.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parent))
from demo_model.dialogues import COUNT, SEED, Part, training
from demo_model.export import write_gguf
from demo_model.network import Muon, Network, Shape
from demo_model.tokenizer import Tokenizer

BATCH = 48
POOL = 24
"""Batches that are drawn at once and sorted by length, so that little is padded."""

RATE = 0.02
"""The highest learning rate of the matrices."""

FIRST_WEIGHTS = 2
"""Seed of the first weights. When copying is learned depends on them: of 1 to 4 and 7, this one is the soonest."""

PACKED = Path(__file__).parent.parent / "src" / "lmagent" / "demo" / "demo.gguf"


def main() -> None:
    """Train, export, and say what came out as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=SEED, help="of the data; the judge knows only the default")
    parser.add_argument("--steps", type=int, default=COUNT // BATCH)
    parser.add_argument("--out", type=Path, default=PACKED)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(FIRST_WEIGHTS)
    tokenizer = Tokenizer()
    network = Network(Shape(len(tokenizer.tokens)))
    figures = train(network, tokenizer, seed=chosen.seed, steps=chosen.steps)
    write_gguf(chosen.out, network, tokenizer)
    data = chosen.out.read_bytes()
    checksum = hashlib.sha256(data).hexdigest()
    chosen.out.with_name(f"{chosen.out.name}.sha256").write_text(f"{checksum}  {chosen.out.name}\n")
    figures |= {"bytes": len(data), "sha256": checksum, "cpu_seconds": round(time.process_time())}
    print(json.dumps(figures, indent=1))  # noqa: T201


def train(network: Network, tokenizer: Tokenizer, *, seed: int, steps: int) -> dict[str, object]:
    """Train the network.

    Args:
        network: its weights are changed.
        tokenizer: makes numbers of the dialogues.
        seed: of the data.
        steps: batches.

    Returns:
        What it came to: dialogues, tokens, parameters, loss.
    """
    muon = Muon(network, rate=RATE)
    stream = batches(tokenizer, seed)
    tokens, mean, right = 0, 0.0, 0.0
    for step in range(steps):
        inputs, targets = next(stream)
        tokens += inputs.numel()
        with torch.autocast("cpu", torch.bfloat16):  # products of matrices; all else, and the weights, are float32
            states = network(inputs)[targets >= 0].float()
        wanted = targets[targets >= 0]
        scores = network.logits(states)
        loss = functional.cross_entropy(scores, wanted)
        loss.backward()
        muon.step(rate_share(step, steps))
        mean = loss.item() if not step else 0.98 * mean + 0.02 * loss.item()
        right = 0.98 * right + 0.02 * (scores.argmax(-1) == wanted).float().mean().item()
        if step % 50 == 49:
            spent = time.process_time()
            print(f"{step + 1:5d}  loss {mean:.4f}  right {right:.4f}  {spent:.0f} s", file=sys.stderr)  # noqa: T201
    parameters = sum(weight.numel() for weight in network.parameters())
    return {"dialogues": steps * BATCH, "tokens": tokens, "parameters": parameters, "loss": round(mean, 5)}


def rate_share(step: int, steps: int) -> float:
    """A short rise, then a cosine down to a hundredth."""
    rise = min(1.0, (step + 1) / 40)
    return rise * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * step / steps)))


def batches(tokenizer: Tokenizer, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of dialogues as inputs and targets; -1 where nothing is learned."""
    dialogues, order = training(seed), Random(seed + 1)
    while True:
        pool = [numbered(tokenizer, next(dialogues)[1]) for _ in range(BATCH * POOL)]
        pool.sort(key=lambda row: len(row[0]))
        groups = [pool[at : at + BATCH] for at in range(0, len(pool), BATCH)]
        order.shuffle(groups)
        yield from map(padded, groups)


def numbered(tokenizer: Tokenizer, parts: list[Part]) -> tuple[list[int], list[int]]:
    """Inputs and targets of one dialogue: only what the model says itself is learned."""
    tokens: list[int] = []
    own: list[bool] = []
    for text, written in parts:
        numbers = tokenizer.encode(text)
        tokens += numbers
        own += [written] * len(numbers)
    return tokens[:-1], [token if mine else -1 for token, mine in zip(tokens[1:], own[1:], strict=True)]


def padded(rows: list[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of one length."""
    longest = max(len(inputs) for inputs, _ in rows)
    inputs = torch.tensor([row + [0] * (longest - len(row)) for row, _ in rows])
    targets = torch.tensor([row + [-1] * (longest - len(row)) for _, row in rows])
    return inputs, targets


if __name__ == "__main__":
    main()
