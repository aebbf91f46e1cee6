"""Item table backends for the contract suite, and the work that racing processes do on them.

A further backend joins the suite by one more entry in `BACKENDS`. `open_table(backend, folder)` opened twice on one folder gives
two handles on the same data where `shared` holds; processes open it by the backend's name, so nothing has to be pickled.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catalog.items.memory import MemoryItemTable
from catalog.items.sqlite import SqliteItemTable
from catalog.items.table import ABSENT, ConditionFailed, Equals, Exists, ItemTable, Put, Update


@dataclass(frozen=True)
class Backend:
    name: str
    make: Callable[[Path], ItemTable]
    shared: bool


BACKENDS = {
    backend.name: backend
    for backend in (
        Backend("memory", lambda folder: MemoryItemTable("offsets"), shared=False),
        Backend("sqlite", lambda folder: SqliteItemTable(folder / "control.db", "offsets"), shared=True),
    )
}


def open_table(name: str, folder: Path) -> ItemTable:
    return BACKENDS[name].make(folder)


def count_up(table: ItemTable, rounds: int) -> int:
    """Move one counter by compare-and-swap until it stands at `rounds`; how many of the steps were ours."""
    won = 0
    while True:
        item = table.get("race", "counter")
        assert item is not None
        n = item["n"]
        assert isinstance(n, int)
        if n >= rounds:
            return won
        try:
            left = table.update(Update("race", "counter", Equals({"n": n}), add={"n": 1}))
        except ConditionFailed as failure:
            assert failure.item is not None
            assert failure.item["n"] != n
        else:
            assert left["n"] == n + 1
            won += 1


def claim_keys(table: ItemTable, keys: int, owner: int) -> int:
    """Create every key once by Absent; how many of them became ours."""
    won = 0
    for i in range(keys):
        try:
            table.put({"PK": "claims", "SK": f"{i:04}", "owner": owner}, ABSENT)
            won += 1
        except ConditionFailed:
            pass
    return won


def move_pairs(table: ItemTable, rounds: int) -> int:
    """Add one to two items in one transaction, `rounds` times, conditional on the first as read; retries until each succeeds."""
    done = 0
    while done < rounds:
        item = table.get("pair", "left")
        assert item is not None
        try:
            table.transact([
                Update("pair", "left", Equals({"n": item["n"]}), add={"n": 1}), Update("pair", "right", Exists(), add={"n": 1}),
            ])
            done += 1
        except ConditionFailed as failure:
            assert failure.failed == (0,)
    return done


JOBS: dict[str, Callable[..., int]] = {"count_up": count_up, "claim_keys": claim_keys, "move_pairs": move_pairs}


def _child(backend: str, folder: str, job: str, arguments: tuple[int, ...], start: Any, results: Any) -> None:
    table = open_table(backend, Path(folder))
    start.wait(60)
    results.put(JOBS[job](table, *arguments))
    table.close()


def race_processes(backend: str, folder: Path, job: str, arguments: list[tuple[int, ...]]) -> list[int]:
    """Run the job in one real process per argument tuple, started together; what each of them returned."""
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(len(arguments)), context.Queue()
    children = [
        context.Process(target=_child, args=(backend, str(folder), job, own, start, results), daemon=True) for own in arguments
    ]
    for child in children:
        child.start()
    counts = [results.get(timeout=60) for _ in children]
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    return counts


def seed(table: ItemTable) -> None:
    """The items the race jobs work on."""
    table.transact([
        Put({"PK": "race", "SK": "counter", "n": 0}, ABSENT), Put({"PK": "pair", "SK": "left", "n": 0}, ABSENT),
        Put({"PK": "pair", "SK": "right", "n": 0}, ABSENT),
    ])
