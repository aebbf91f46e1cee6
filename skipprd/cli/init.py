"""`skipprd init`: a starter skippr.yml that works as it is."""

from __future__ import annotations

import argparse
import os
from importlib.resources import files
from pathlib import Path

from catalog.errors import Conflict

__all__ = ["arguments", "run"]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", nargs="?", default="skippr.yml", help="where to write it [skippr.yml]")


def run(options: argparse.Namespace) -> int:
    """Never overwrites: raises Conflict where the file is there."""
    path = Path(options.path)
    text = files("skipprd").joinpath("starter.yml").read_text(encoding="utf-8")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        raise Conflict(f"{path} is there already and is not overwritten; give another path: skipprd init other.yml") from None
    with open(descriptor, "w", encoding="utf-8") as out:
        out.write(text)
    print(f"wrote {path}; next: put files into the folder it names, then: skipprd sync --pipeline events --once")
    return 0
