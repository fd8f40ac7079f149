"""Transformers worker: runs `transformers serve`, Hugging Face's own server, on one model folder.

Run as `python -m lmagent.modelserver.engine.transformers`; the protocol is that of `worker`. The server loads the model
at the first request and gives its memory back after `sleep` seconds. Nothing is fetched, and no code of the model runs.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from lmagent.config.installed import install_command
from lmagent.modelserver.engine import lifeline
from lmagent.modelserver.spec import Hello, WorkerSpec

START = 110.0  # seconds that the server has to listen; importing torch takes some ten of them on a slow disk


class StartFailed(Exception):
    """The server cannot be started; the text says why."""


def command(spec: WorkerSpec, port: int) -> list[str]:
    """Return the command line of the server."""
    if spec.settings.template:
        raise StartFailed("a template in the settings needs a GGUF model: Transformers takes the folder's own template")
    places = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", "")))
    program = shutil.which("transformers", path=places)
    if program is None:
        how = install_command("transformers", "torch", "transformers[serving]")
        raise StartFailed(f"Transformers is not installed, and this model needs it; install it: {how}")
    device = "cpu" if spec.settings.gpu_layers == 0 else "auto"
    timeout = max(1, int(spec.settings.sleep)) if spec.settings.sleep > 0 else -1
    options = {"host": "127.0.0.1", "port": port, "device": device, "model-timeout": timeout, "log-level": "warning"}
    return [program, "serve", *(f"--{name}={value}" for name, value in options.items())]


def start(spec: WorkerSpec) -> tuple[subprocess.Popen[bytes], str]:
    """Start the server in the folder above the model, whose name is then the name of the folder.

    Returns:
        The process, and its address once it listens.
    """
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    offline = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(max(1, spec.settings.threads))}
    process = subprocess.Popen(
        command(spec, port),
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        cwd=Path(spec.model).parent,
        env={**os.environ, **offline},
    )
    until = time.monotonic() + START
    while time.monotonic() < until:
        if (status := process.poll()) is not None:
            raise StartFailed(f"`transformers serve` ended with status {status}; the end of its log says why")
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return process, f"http://127.0.0.1:{port}"
        time.sleep(0.1)
    raise StartFailed(f"`transformers serve` did not listen within {START:.0f} s")


def main() -> None:
    began = time.monotonic()
    try:
        spec = lifeline.read_spec()
        lifeline.hold()
        process, address = start(spec)
    except (StartFailed, ValueError, OSError) as error:
        lifeline.fail(str(error))
    lifeline.say(Hello(address, os.getpid(), round(time.monotonic() - began, 3)))
    threading.Thread(target=lifeline.wait, daemon=True).start()
    os._exit(abs(process.wait()))


if __name__ == "__main__":
    main()
