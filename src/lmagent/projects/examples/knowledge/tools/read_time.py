from pathlib import Path


def read_time(path: str) -> str:
    """Tell how long it takes to read a file of the workspace aloud."""
    words = len(Path(path).read_text(encoding="utf-8").split())
    return f"{words} words, about {max(1, round(words / 150))} minutes"
