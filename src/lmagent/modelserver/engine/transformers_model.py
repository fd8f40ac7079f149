"""Transformers model: a folder with a Hugging Face model, computed by torch. Needs torch and the extra `transformers`.

One request computes at a time: the libraries keep their random numbers for the whole process. Nothing is fetched from
anywhere, and no code from a model's folder is run.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from lmagent.config.installed import install_command
from lmagent.modelserver.engine.textflow import Cutter, Detokenizer
from lmagent.modelserver.pool.machine import compute_threads
from lmagent.modelserver.spec import WorkerSpec


class LoadError(Exception):
    """The model cannot be loaded; the text says why."""


class RequestError(Exception):
    """The request cannot be served; the text says why.

    Args:
        message: what is wrong with it.
        code: OpenAI's `error.code`.
    """

    def __init__(self, message: str, code: str = "invalid_request") -> None:
        super().__init__(message)
        self.code = code


class Asked(Struct, frozen=True):
    """What is to be generated.

    Attributes:
        tokens: the prompt.
        limit: tokens of the reply at most.
        temperature: 0 for the most likely token each time.
        top_p: share of probability from which is drawn.
        seed: of the random numbers; None for any.
        stops: texts that end the reply, and do not belong to it.
    """

    tokens: tuple[int, ...]
    limit: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    stops: tuple[str, ...] = ()


class Generated(Struct, frozen=True):
    """How a reply ended.

    Attributes:
        tokens: how many it has.
        reason: OpenAI's `finish_reason`.
    """

    tokens: int
    reason: str


class TransformersModel:
    """One model.

    Args:
        spec: what to load, and how.

    Raises:
        LoadError: it cannot be loaded.
    """

    def __init__(self, spec: WorkerSpec) -> None:
        os.environ["HF_HUB_OFFLINE"] = "1"
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        try:
            self._torch: Any = importlib.import_module("torch")
            self._library: Any = importlib.import_module("transformers")
        except ImportError as error:
            how = install_command("transformers", "torch")
            raise LoadError(
                f"torch and transformers are needed for this model; install them: {how} ({error})"
            ) from error
        self._settings = spec.settings
        self._path = spec.model
        self._torch.set_num_threads(spec.settings.threads or compute_threads())
        self._device = self._best_device()
        self._model: Any = None
        self._lock = threading.Lock()
        self.used = time.monotonic()
        try:
            self._config: Any = self._library.AutoConfig.from_pretrained(self._path, local_files_only=True)
            self._tokenizer: Any = self._library.AutoTokenizer.from_pretrained(self._path, local_files_only=True)
            if spec.settings.template:
                self._tokenizer.chat_template = Path(spec.settings.template).read_text("utf-8")
            self._wake()
        except (OSError, ValueError, RuntimeError, ImportError, KeyError, MemoryError) as error:
            raise LoadError(f"{self._path} cannot be loaded: {error}") from error

    @property
    def context(self) -> int:
        """Tokens of the window."""
        own = int(getattr(self._config, "max_position_embeddings", 0) or 0)
        chosen = self._settings.context
        return min(chosen, own) if chosen and own else chosen or own

    @property
    def embeds(self) -> bool:
        """Whether it makes embeddings rather than text."""
        names: Sequence[str] = getattr(self._config, "architectures", None) or ()
        speaks = any("ForCausalLM" in name or "ForConditionalGeneration" in name for name in names)
        return self._settings.embedding or not speaks

    def prompt(self, messages: Sequence[Any], tools: Sequence[Any] | None, extra: dict[str, Any]) -> tuple[int, ...]:
        """The tokens of a conversation, by the model's own template.

        Raises:
            RequestError: there is no template, or it refuses the conversation.
        """
        if not self._tokenizer.chat_template:
            raise RequestError("the model has no chat template; name one as `template` in its settings", "no_template")
        try:
            text = self._tokenizer.apply_chat_template(
                list(messages),
                tools=list(tools) if tools else None,
                add_generation_prompt=True,
                tokenize=False,
                **extra,
            )
        except Exception as error:  # whatever a template in Jinja raises
            raise RequestError(f"the chat template refuses the conversation: {error}") from error
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def generate(self, asked: Asked, emit: Callable[[str], None], stop: threading.Event) -> Generated:
        """Write a reply.

        Args:
            asked: what.
            emit: is called with each piece of text.
            stop: ends it before its time.
        """
        with self._lock:
            try:
                return self._generate(asked, emit, stop)
            finally:
                self.used = time.monotonic()

    def embed(self, texts: Sequence[str]) -> tuple[list[list[float]], int]:
        """Embeddings of texts, of length 1 each, and the number of tokens that were read."""
        with self._lock:
            self._wake()
            batch = self._tokenizer(
                list(texts), padding=True, truncation=True, max_length=self.context or None, return_tensors="pt"
            ).to(self._device)
            with self._torch.inference_mode():
                states = self._model(**batch, **self._states()).hidden_states[-1]
            vectors = self._pooled(states, batch["attention_mask"])
            vectors = self._torch.nn.functional.normalize(vectors.float(), dim=-1)
            self.used = time.monotonic()
            return vectors.cpu().tolist(), int(batch["attention_mask"].sum())

    def sleep(self) -> bool:
        """Give the memory back; the next request loads the model again. Whether there was any."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._model is None:
                return False
            self._model = None
            gc.collect()
            if self._torch.cuda.is_available():
                self._torch.cuda.empty_cache()
            if sys.platform == "linux":
                with suppress(OSError, AttributeError):
                    ctypes.CDLL(None).malloc_trim(0)
            return True
        finally:
            self._lock.release()

    def gpu_memory(self) -> int:
        """Bytes that it took of a graphics card."""
        return int(self._torch.cuda.memory_reserved()) if self._device == "cuda" else 0

    def _states(self) -> dict[str, bool]:
        return {"output_hidden_states": True, "return_dict": True}

    def _generate(self, asked: Asked, emit: Callable[[str], None], stop: threading.Event) -> Generated:
        self._wake()
        if asked.seed is not None:
            self._torch.manual_seed(asked.seed)
        ends = self._ends()
        writer = _Writer(emit, Cutter(asked.stops), Detokenizer(self._decode), ends)
        ids = self._torch.tensor([asked.tokens], device=self._device)
        drawn = asked.temperature > 0
        how = {"temperature": asked.temperature, "top_p": asked.top_p, "top_k": 0} if drawn else {}
        criteria = self._library.StoppingCriteriaList([_Stop(self._torch, writer, stop)])
        with self._torch.inference_mode():
            self._model.generate(
                ids,
                attention_mask=self._torch.ones_like(ids),
                max_new_tokens=asked.limit,
                do_sample=drawn,
                streamer=writer,
                stopping_criteria=criteria,
                pad_token_id=next(iter(ends), 0),
                eos_token_id=sorted(ends) or None,
                **how,
            )
        writer.finish()
        return Generated(writer.count, "stop" if writer.ended or writer.cutter.stopped or stop.is_set() else "length")

    def _wake(self) -> None:
        if self._model is not None:
            return
        kind = self._library.AutoModel if self.embeds else self._library.AutoModelForCausalLM
        model = kind.from_pretrained(self._path, local_files_only=True, dtype="auto")
        self._model = model.to(self._device).eval()
        if self._tokenizer.pad_token is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token

    def _best_device(self) -> str:
        if self._settings.gpu_layers == 0:
            return "cpu"
        if self._torch.cuda.is_available():
            return "cuda"
        return "mps" if self._torch.backends.mps.is_available() else "cpu"

    def _ends(self) -> frozenset[int]:
        """Tokens that end a reply."""
        found: set[int] = set()
        for source in (self._model.generation_config, self._config, self._tokenizer):
            value = getattr(source, "eos_token_id", None)
            found |= set(value) if isinstance(value, list) else {value} if isinstance(value, int) else set()  # pyright: ignore[reportUnknownArgumentType]
        return frozenset(found)

    def _decode(self, tokens: Sequence[int]) -> str:
        """Special tokens are kept: some formats of calls are made of them."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _pooled(self, states: Any, mask: Any) -> Any:
        how = self._settings.pooling or _own_pooling(Path(self._path))
        if how == "cls":
            return states[:, 0]
        if how == "last":
            places = self._torch.arange(mask.shape[1], device=mask.device)
            return states[self._torch.arange(states.shape[0]), (mask * places).argmax(1)]
        weights = mask.unsqueeze(-1).to(states.dtype)
        return (states * weights).sum(1) / weights.sum(1).clamp(min=1e-9)


class _Writer:
    """The library's streamer: is given each token as it is drawn, the prompt first."""

    def __init__(self, emit: Callable[[str], None], cutter: Cutter, text: Detokenizer, ends: frozenset[int]) -> None:
        self.count = 0
        self.ended = False
        self.cutter = cutter
        self._emit = emit
        self._text = text
        self._ends = ends
        self._prompt = True

    def put(self, value: Any) -> None:
        """Take tokens."""
        if self._prompt:
            self._prompt = False
            return
        for token in value.flatten().tolist():
            self.count += 1
            if token in self._ends:
                self.ended = True
            elif not self.ended:
                self._show(self.cutter.feed(self._text.feed(token)))

    def end(self) -> None:
        """The library is done."""

    def finish(self) -> None:
        """Show what was held back."""
        self._show(self.cutter.feed(self._text.rest()))
        self._show(self.cutter.rest())

    def _show(self, text: str) -> None:
        if text:
            self._emit(text)


class _Stop:
    """The library's stopping criterion."""

    def __init__(self, torch: Any, writer: _Writer, stop: threading.Event) -> None:
        self._torch = torch
        self._writer = writer
        self._stop = stop

    def __call__(self, ids: Any, scores: Any, **_: Any) -> Any:
        done = self._stop.is_set() or self._writer.cutter.stopped
        return self._torch.full((ids.shape[0],), done, dtype=self._torch.bool, device=ids.device)


def _own_pooling(folder: Path) -> str:
    """How a folder of sentence-transformers says that it pools; "mean" otherwise."""
    try:
        said = json.loads((folder / "1_Pooling" / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return "mean"
    return "cls" if said.get("pooling_mode_cls_token") else "last" if said.get("pooling_mode_lasttoken") else "mean"
