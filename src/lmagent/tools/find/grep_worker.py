"""The process in which grep runs regular expressions: it can be killed, a thread that is inside `re` cannot.

It is a script in an isolated interpreter. On standard input: the pattern, then texts, each a 4-byte big-endian length
and UTF-8. On standard output: for the pattern `ok` or `error <why>`, for each text a line `<line>,<start>,<end> …` of
its first hits and `=<all matching lines>`. The alarm ends it when its time is over.
"""

import re
import signal
import struct
import sys

KEPT = 500


def main() -> None:
    signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))  # the default action of SIGALRM is to end the process
    pattern = _receive()
    if pattern is None:
        return
    try:
        search = re.compile(pattern).search
    except (re.error, OverflowError, RecursionError) as error:
        _answer(f"error {error}")
        return
    _answer("ok")
    while (text := _receive()) is not None:
        hits = list[str]()
        total = 0
        for number, line in enumerate(text.split("\n"), 1):
            found = search(line.removesuffix("\r"))
            if found is not None:
                total += 1
                if total <= KEPT:
                    hits.append(f"{number},{found.start()},{found.end()}")
        _answer(" ".join([*hits, f"={total}"]))


def _receive() -> str | None:
    size = sys.stdin.buffer.read(4)
    if len(size) < 4:
        return None
    return sys.stdin.buffer.read(struct.unpack(">I", size)[0]).decode("utf-8", "surrogatepass")


def _answer(line: str) -> None:
    sys.stdout.buffer.write(line.replace("\n", " ").encode("utf-8", "backslashreplace") + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
