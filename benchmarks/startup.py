"""Claim: the command line answers at once."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.measure import Claim, median, repeat, run

__all__ = ["claims"]


def claims(folder: Path, *, quick: bool) -> list[Claim]:
    """Median of whole processes."""
    help_run = median(repeat(3 if quick else 10, lambda: run([sys.executable, "-m", "skipprd", "--help"], cwd=folder)))
    return [Claim("skipprd --help", "s", help_run.seconds, 0.3, at_least=False)]
