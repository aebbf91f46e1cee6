"""`python -m benchmarks [--only NAME ...] [--quick] [--folder F]`: measure, print the table, write results.json."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from benchmarks.measure import Claim, write_results

MODULES = ("startup", "ingest", "flight")


def _row(claim: Claim) -> str:
    sign = ">=" if claim.at_least else "<="
    detail = ", ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in claim.detail.items())
    met = "yes" if claim.met else "NO"
    return f"| {claim.name} | {claim.value:.2f} {claim.unit} | {sign} {claim.target:g} {claim.unit} | {met} | {detail} |"


def main() -> None:
    """Exit code 0 whether or not a target is met: the table says which are."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=MODULES, help="measure only this (repeatable)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, one run each: a smoke test, not a figure to quote")
    parser.add_argument("--folder", type=Path, default=Path(".bench"), help="where data and results go")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    found: list[Claim] = []
    print("| what | measured | to reach | met | of |\n|---|---|---|---|---|", flush=True)
    for name in options.only or MODULES:
        for claim in importlib.import_module(f"benchmarks.{name}").claims(folder, quick=options.quick):
            found.append(claim)
            print(_row(claim), flush=True)
    print(f"\nwritten to {write_results(folder, found)}")


if __name__ == "__main__":
    main()
