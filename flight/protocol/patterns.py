"""LIKE patterns of metadata requests: `%` any run, `_` one character, `\\` (SqlInfo 513) makes the next one literal."""

from __future__ import annotations

from typing import Final

__all__ = ["ESCAPE", "LikePattern"]

ESCAPE: Final = "\\"
_ANY_RUN: Final = "%"
_ANY_ONE: Final = "_"


class LikePattern:
    """A compiled pattern. Case-sensitive; matching takes at most len(pattern) * len(text) steps, whatever the pattern."""

    def __init__(self, pattern: str | None) -> None:
        """None matches everything; a lone escape at the end stands for itself."""
        self._tokens: list[tuple[str, bool]] | None = None if pattern is None else list(_tokens(pattern))
        literal = self._tokens is not None and not any(wild for _, wild in self._tokens)
        #: The one text it matches, None where it has wildcards.
        self.literal: str | None = "".join(c for c, _ in self._tokens or ()) if literal else None

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        if self._tokens is None:
            return True
        if self.literal is not None:
            return text == self.literal
        tokens, at, token, star, resume = self._tokens, 0, 0, -1, 0
        while at < len(text):
            if token < len(tokens):
                char, wild = tokens[token]
                if wild and char == _ANY_RUN:
                    star, resume = token, at
                    token += 1
                    continue
                if wild or char == text[at]:
                    token += 1
                    at += 1
                    continue
            if star < 0:
                return False
            resume += 1
            token, at = star + 1, resume
        return all(wild and char == _ANY_RUN for char, wild in tokens[token:])


def _tokens(pattern: str) -> list[tuple[str, bool]]:
    """(character, is a wildcard) pairs."""
    out = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == ESCAPE and at + 1 < len(pattern):
            at += 1
            out.append((pattern[at], False))
        else:
            out.append((char, char in (_ANY_RUN, _ANY_ONE)))
        at += 1
    return out
