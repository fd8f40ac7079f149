"""The network: llama.cpp's `llama` in torch. Its training: Muon for the matrices, AdamW for the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """Sizes of a network."""

    vocabulary: int
    layers: int = 4
    width: int = 128
    heads: int = 4
    hidden: int = 320
    rope_base: float = 10_000.0
    epsilon: float = 1e-5


class Norm(nn.Module):
    """RMS norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape.width))
        self.epsilon = shape.epsilon

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        return functional.rms_norm(x, self.weight.shape, self.weight, self.epsilon)


class Layer(nn.Module):
    """Attention with rotary positions (pairs i, i + half: see `interleaved`), then a gated feed-forward part."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, hidden = shape.width, shape.hidden
        self.heads = shape.heads
        self.attn_norm, self.ffn_norm = Norm(shape), Norm(shape)
        self.attn_q, self.attn_k, self.attn_v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.attn_output = nn.Linear(width, width, bias=False)
        self.ffn_gate, self.ffn_up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.ffn_down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        """One layer. `turns` holds cosine and sine of each position."""
        batch, length, width = x.shape
        normed = self.attn_norm(x)

        def split(y: Tensor) -> Tensor:
            return y.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

        query, key = _turn(split(self.attn_q(normed)).float(), turns), _turn(split(self.attn_k(normed)).float(), turns)
        seen = _attention(query, key, split(self.attn_v(normed)))
        x = x + self.attn_output(seen.transpose(1, 2).reshape(batch, length, width))
        normed = self.ffn_norm(x)
        return x + self.ffn_down(functional.silu(self.ffn_gate(normed)) * self.ffn_up(normed))


class Network(nn.Module):
    """The whole; the embedding is also the output, so that whatever token was read can be written."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.vocabulary, shape.width)
        self.blk = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.output_norm = Norm(shape)
        nn.init.normal_(self.token_embd.weight, std=0.06)
        for name, weight in self.named_parameters():
            if weight.ndim == 2 and "blk" in name:
                small = 1 / math.sqrt(2 * shape.layers) if name.split(".")[2] in ("attn_output", "ffn_down") else 1
                nn.init.normal_(weight, std=small / math.sqrt(weight.shape[1]))

    def forward(self, tokens: Tensor) -> Tensor:
        """The last layer's output, normed: `logits` makes tokens of it."""
        x = self.token_embd(tokens)
        turns = _turns(self.shape, tokens.shape[1])
        for layer in self.blk:
            x = layer(x, turns)
        return self.output_norm(x)

    def logits(self, x: Tensor) -> Tensor:
        """Scores of the tokens."""
        return x @ self.token_embd.weight.T


def _turns(shape: Shape, length: int) -> tuple[Tensor, Tensor]:
    half = shape.width // shape.heads // 2
    speed = shape.rope_base ** (-torch.arange(half, dtype=torch.float32) / half)
    angle = torch.arange(length, dtype=torch.float32)[:, None] * speed
    return angle.cos(), angle.sin()


def _attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention in bfloat16, spelled out: torch's own takes half as long again forth, and thrice back."""
    batch, heads, length, width = query.shape
    later = torch.full((length, length), -math.inf, dtype=torch.bfloat16).triu(1)
    query, key, value = (
        x.bfloat16().reshape(batch * heads, length, width) for x in (query / math.sqrt(width), key, value)
    )
    scores = torch.baddbmm(later.expand(batch * heads, length, length), query, key.transpose(1, 2))
    return (scores.softmax(-1) @ value).view(batch, heads, length, width)


def _turn(x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Turn each pair; the result lies in one piece, without which attention takes four times as long."""
    cosine, sine = turns
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1).contiguous()


def interleaved(weight: Tensor, heads: int) -> Tensor:
    """A query or key matrix with its pairs as llama.cpp's `llama` has them, 2i and 2i + 1; here strides are slow."""
    rows, columns = weight.shape
    return weight.view(heads, 2, rows // heads // 2, columns).transpose(1, 2).reshape(rows, columns)


class Muon:
    """Momentum whose step is made orthogonal (Keller Jordan, 2024), for matrices; the others get AdamW.

    Args:
        network: what is trained.
        rate: of the matrices.
        other_rate: of the embedding and the norms.
    """

    def __init__(self, network: Network, *, rate: float = 0.02, other_rate: float = 0.004) -> None:
        named = list(network.named_parameters())
        self.matrices = [weight for name, weight in named if weight.ndim == 2 and "blk" in name]
        others = [weight for name, weight in named if not (weight.ndim == 2 and "blk" in name)]
        self.adam = torch.optim.AdamW(others, lr=other_rate, betas=(0.9, 0.98), weight_decay=0.0)
        self.rate, self.other_rate = rate, other_rate
        self.momenta = [torch.zeros_like(weight) for weight in self.matrices]

    def step(self, share: float) -> None:
        """Take a step at a share of the full rates."""
        for group in self.adam.param_groups:
            group["lr"] = self.other_rate * share
        self.adam.step()
        self.adam.zero_grad()
        groups: dict[torch.Size, list[int]] = {}
        for at, weight in enumerate(self.matrices):
            groups.setdefault(weight.shape, []).append(at)
        with torch.no_grad():
            for size, members in groups.items():
                moves = []
                for at in members:
                    grad = self.matrices[at].grad
                    assert grad is not None
                    self.momenta[at].lerp_(grad, 0.05)
                    moves.append(grad.lerp(self.momenta[at], 0.95))
                    self.matrices[at].grad = None
                scale = self.rate * share * max(1.0, size[0] / size[1]) ** 0.5
                for at, move in zip(members, _orthogonal(torch.stack(moves)), strict=True):
                    self.matrices[at].mul_(1 - 0.02 * self.rate * share).add_(move, alpha=-scale)


def _orthogonal(moves: Tensor, rounds: int = 5) -> Tensor:
    """Newton-Schulz iteration of the fifth order."""
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = moves.shape[-2] > moves.shape[-1]
    x = moves.mT if tall else moves
    x = (x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)).bfloat16()  # a direction need not be exact
    for _ in range(rounds):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return (x.mT if tall else x).float()
