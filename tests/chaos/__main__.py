"""`python -m tests.chaos --seed N --minutes M`: the simulator for half the time, then real processes under SIGKILL."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from skipprd import failpoints
from tests.chaos.kill import Violation, run_for


def main() -> None:
    """Exit 1 at the first violation, leaving its folder behind and naming it."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=5.0)
    options = parser.parse_args()
    half = options.minutes / 2
    simulator = [sys.executable, "-m", "tests.simulation", "--seed", str(options.seed), "--minutes", str(half)]
    if subprocess.run(simulator).returncode:
        raise SystemExit(1)
    folder = Path(tempfile.mkdtemp(prefix="skippr-chaos-"))
    try:
        run = run_for(folder / "run", options.seed, sorted(failpoints.ALL), half)
    except Violation as violation:
        raise SystemExit(f"{violation}\nfolder: {folder}") from violation
    print(f"seed {options.seed}: {run.rounds} rounds, {run.kills} kills, {run.written} lines ({run.bad} bad), each found once")
    print(f"  counted {run.counts} times meanwhile: never fewer, never too many")
    for name, count in sorted(run.hits.items()):
        print(f"  killed {count:4} times at {name}")


if __name__ == "__main__":
    main()
