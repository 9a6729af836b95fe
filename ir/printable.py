"""Text that a terminal shows and does nothing else with. Knows nothing of where it comes from."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """`text` with what is not printable (escape codes, line ends, marks that reorder letters)
    spelt out, but for the characters in `keep`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _spelt(c) for c in text)


def _spelt(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def shortened(text: str, most: int = 300) -> str:
    """One printable line of at most `most` letters: head and tail of what is longer."""
    if len(text) > most:
        half = (most - 5) // 2
        text = f"{text[:half]} ... {text[-half:]}"
    return printable(text)
