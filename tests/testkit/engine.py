"""EngineServer: the real llama.cpp server on a model file, in a child process. Needs the package `xllamacpp`.

    with EngineServer(build_tiny_gguf(tmp_path / "tiny.gguf")) as engine:
        ...                       # engine.base_url speaks OpenAI's API

The child loads the model, prints its address as one line of JSON and ends when its standard input does, so nothing
is left behind however the test ends. It computes on one thread: more of them wait for each other by spinning.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ALIAS = "tiny"  # name of the model that the engine reports


class EngineServer:
    """A llama.cpp server while the `with` block runs.

    Entering raises RuntimeError, with the engine's output, if the engine does not start.

    Args:
        model: the GGUF file.
        context: size of the window in tokens.
        seconds: how long loading may take.
    """

    def __init__(self, model: Path, *, context: int = 32_768, seconds: float = 30.0) -> None:
        self.model = model
        self.context = context
        self.url = ""
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def base_url(self) -> str:
        """`http://127.0.0.1:PORT/v1`."""
        return f"{self.url}/v1"

    def __enter__(self) -> Self:
        log = self.model.with_suffix(".engine.log")
        command = [sys.executable, "-P", __file__, str(self.model), str(self.context)]
        with log.open("wb") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(self._seconds)
            self._close()
            said = log.read_bytes()[-2000:].decode("utf-8", "replace")
            raise RuntimeError(f"the engine did not start: {said}")
        self.url = str(json.loads(line)["address"])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return
        process.stdin.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def load(model: str, context: int) -> Any:
    """Load the model and open the HTTP server; the result has `listening_address`."""
    xllamacpp: Any = importlib.import_module("xllamacpp")  # it has no type stubs
    settings: Any = xllamacpp.CommonParams()
    settings.model.path = model
    settings.model_alias = {ALIAS}
    settings.hostnames = ["127.0.0.1"]
    settings.port = 0
    settings.n_ctx = context
    settings.n_parallel = 1
    settings.n_gpu_layers = 0
    settings.cpuparams.n_threads = 1
    settings.cpuparams_batch.n_threads = 1
    settings.n_threads_http = 2
    settings.fit_params = False
    settings.warmup = False
    settings.use_jinja = True
    settings.ui = False
    return xllamacpp.Server(settings)


def main() -> None:
    """Serve until standard input ends."""
    server = load(sys.argv[1], int(sys.argv[2]))
    sys.stdout.write(json.dumps({"address": server.listening_address}) + "\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    os._exit(0)  # the engine's threads need no goodbye


if __name__ == "__main__":
    main()
