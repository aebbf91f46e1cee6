"""How the simulated machine interrupts the code: a process that dies, and a chance that says when and how."""

from __future__ import annotations

import random
from collections.abc import Callable

__all__ = ["Chance", "Death", "Hook"]

Hook = Callable[[str], None]
"""Called before each step a process takes outside of itself, with the step's name. It may raise `Death` or an error of the device."""


class Death(BaseException):
    """The process is gone: nothing of it runs any more, its memory is lost. Not an Exception, so that nothing handles it."""

    def __init__(self, why: str) -> None:
        super().__init__(why)


class Chance:
    """Every decision of a run, from one seed: the same seed makes the same run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def happens(self, probability: float) -> bool:
        return self.random.random() < probability

    def below(self, limit: int) -> int:
        """0 .. limit - 1."""
        return int(self.random.random() * limit)

    def between(self, low: int, high: int) -> int:
        """low .. high, both included."""
        return low + self.below(high - low + 1)

    def one_of(self, options: list[str]) -> str:
        return options[self.below(len(options))]
