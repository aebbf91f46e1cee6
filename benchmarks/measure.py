"""Measuring whole processes: wall time, CPU time and peak memory, as the operating system accounts for them."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

__all__ = ["Claim", "Run", "median", "repeat", "run", "worker"]

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Run:
    """One finished process. `memory_bytes_max` is its own peak resident size, children excluded."""

    seconds: float
    cpu_seconds: float
    memory_bytes_max: int
    output: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """One row of the README's table: what was measured, ours and the peers', and the ratio that is promised.

    `met` compares `value` with `target` in the direction that `at_least` says.
    """

    name: str
    unit: str
    value: float
    target: float
    at_least: bool = True
    detail: dict[str, float | str] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        return self.value >= self.target if self.at_least else self.value <= self.target

    def as_dict(self) -> dict[str, object]:
        return asdict(self) | {"met": self.met}


def run(command: Sequence[str | Path], *, cwd: Path, env: dict[str, str] | None = None, stdin: Path | None = None) -> Run:
    """Run to its end. Raises RuntimeError with the end of its output when it fails."""
    with tempfile.TemporaryFile() as out, open(stdin or os.devnull, "rb") as given:
        started = time.perf_counter()
        process = subprocess.Popen(
            [str(c) for c in command], cwd=cwd, env=os.environ | {"PYTHONPATH": str(ROOT)} | (env or {}), stdin=given, stdout=out,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().decode(errors="replace")
    if process.returncode:
        raise RuntimeError(f"{' '.join(str(c) for c in command)} ended with {process.returncode}:\n{text[-3000:]}")
    scale = 1 if sys.platform == "darwin" else 1024
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * scale, text)


def worker(module: str, *arguments: str | Path) -> list[str | Path]:
    """Command line of a peer: a module of this folder in a process of its own."""
    return [sys.executable, "-m", f"benchmarks.peers.{module}", *arguments]


def repeat(times: int, measure: Callable[[], Run]) -> list[Run]:
    """Several runs one after the other."""
    return [measure() for _ in range(times)]


def median(runs: Sequence[Run]) -> Run:
    """The run with the median wall time."""
    at = statistics.median_high(sorted(r.seconds for r in runs))
    return next(r for r in runs if r.seconds == at)


def write_results(folder: Path, claims: Sequence[Claim]) -> Path:
    """Results as JSON; the path written."""
    path = folder / "results.json"
    path.write_text(json.dumps([c.as_dict() for c in claims], indent=2) + "\n")
    return path
