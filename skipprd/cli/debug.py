"""`skipprd debug`: tools for tests and support."""

from __future__ import annotations

import argparse

__all__ = ["arguments", "run"]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("failpoints",), help="failpoints: the names SKIPPR_FAILPOINTS takes, one a line")


def run(options: argparse.Namespace) -> int:
    from skipprd import failpoints

    for name in sorted(failpoints.ALL):
        print(name)
    return 0
