"""`python -m tests.simulation`: `--seed N --trace` replays one seed, `--seeds M` runs M of them, `--minutes T` as many as fit."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation.machine import Violation
from tests.simulation.run import run_seed

_TRACE_LINES = 60


def main() -> int:
    """0 where every seed holds, 1 at the first violation, with its trace."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--trace", action="store_true", help="print every step")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    started_s, seed = time.monotonic(), options.seed
    while seed < options.seed + options.seeds or time.monotonic() - started_s < options.minutes * 60:
        try:
            counts += run_seed(seed)
        except Violation:
            return _replay(seed, whole=options.trace)
        if options.trace:
            _replay(seed, whole=True)
        seed += 1
    seconds = time.monotonic() - started_s
    print(f"seeds {options.seed} to {seed - 1} hold, {seconds:.1f} s")
    for name, count in sorted(counts.items()):
        print(f"  {count:8} {name}")
    return 0


def _replay(seed: int, *, whole: bool) -> int:
    """The same seed again, with its trace or the end of it."""
    trace: list[str] = []
    try:
        run_seed(seed, trace=trace)
    except Violation as error:
        print("\n".join(trace if whole else ["...", *trace[-_TRACE_LINES:]]))
        print(error, file=sys.stderr)
        return 1
    print("\n".join(trace))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
