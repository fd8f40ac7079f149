def count_words(text: str, longest: int = 5) -> dict[str, object]:
    """Count the words of a text, and name its longest ones."""
    words = text.split()
    ranked = sorted(set(words), key=lambda word: (-len(word), word))
    return {"words": len(words), "longest": ranked[:longest]}
