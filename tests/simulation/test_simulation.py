"""The simulator holds over its seeds, kills at every step, replays a seed exactly, and notices every rule that is switched off."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.simulation.machine import Violation
from tests.simulation.mutations import MUTATIONS, Mutation
from tests.simulation.run import run_seed

SEEDS = 2000
CHUNK = 500
STEPS = (
    "compactor.before_commit", "compactor.committed", "compactor.reclaimed", "offsets.before_log_base", "offsets.before_publish",
    "offsets.chunk_published", "offsets.log_base_set", "offsets.published", "recovery.based", "recovery.epoch_raised",
    "recovery.published", "recovery.synced", "wal.control.committed", "wal.control.fsynced", "wal.control.renamed",
    "wal.control.written", "wal.reclaim.based", "wal.reclaim.row", "wal.reclaim.synced", "wal.reclaim.unlinked",
    "wal.segment.committed", "wal.segment.fsynced", "wal.segment.linked", "wal.segment.published", "wal.segment.written",
)
"""Failpoints on the way of an entry from the source to the tables; each has to be killed at in every chunk of seeds."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Simulated crashes leave warnings in the log that say nothing here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(1, SEEDS + 1, CHUNK))
def test_every_row_once_whatever_happens(first: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first, first + CHUNK):
        counts += run_seed(seed)
    assert [step for step in STEPS if not counts[f"killed at {step}"]] == []
    for trouble in ("crash", "power cut", "disk error", "pause", "item write after", "item write before", "item write late"):
        assert counts[trouble] > 0, trouble


def test_a_seed_replays_exactly() -> None:
    for seed in range(1, 9):
        first: list[str] = []
        again: list[str] = []
        assert run_seed(seed, trace=first) == run_seed(seed, trace=again) == run_seed(seed)
        assert first == again
        assert len(first) > 100


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"rule {m.rule}: {m.what}")
def test_a_rule_switched_off_is_noticed(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.apply(monkeypatch)
    with pytest.raises(Violation, match=r"replay: python -m tests\.simulation --seed \d+ --trace"):
        _run_all(mutation.full)


def _run_all(full: bool) -> None:
    for seed in range(1, SEEDS + 1):
        run_seed(seed, full=full)
