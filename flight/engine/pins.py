"""Which version of each table a statement reads, and the live rows that belong to exactly that version.

The order is protocol (rule 14, docs/protocol.md): the logs that feed the tables are captured first, the pointers are read after
that, and the rows are those of the capture above each pointer's marks. A row that is compacted in between is then below the mark
and counted once (I9); the other order could count it not at all. What a log says is stale, or a pipeline that a second reading
of the pointers adds, starts the whole again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from catalog.clock import Clock
from catalog.errors import Unavailable
from catalog.lake import TableState, table_label
from flight.engine.resolve import Hole
from flight.engine.scope import LakeReader
from flight.live import LiveCapture, LiveRows, LiveSource, StaleCapture

__all__ = ["LIVE_WAL", "LiveWal", "Pin", "Pins", "take"]

LiveWal = Literal["required", "best_effort", "off"]
LIVE_WAL: Final[tuple[LiveWal, ...]] = ("required", "best_effort", "off")

_ATTEMPTS: Final = 10
_BACKOFF_FIRST_S: Final = 0.005
_BACKOFF_MAX_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Pin:
    """One table as one statement reads it. `live` is None where there are no live rows, or none may be read."""

    hole: Hole
    state: TableState
    live: LiveRows | None = None

    @property
    def shape(self) -> tuple[str, str]:
        """Equal shapes give the same columns."""
        return self.state.metadata_location, "" if self.live is None else self.live.schema.to_string(show_field_metadata=False)


class Pins:
    """The pins of a statement, and the capture that keeps their live rows readable until `close` (idempotent)."""

    def __init__(self, pins: Sequence[Pin], capture: LiveCapture | None = None) -> None:
        self.pins = tuple(pins)
        self._capture = capture

    @property
    def locations(self) -> tuple[str, ...]:
        """The pinned metadata files."""
        return tuple(pin.state.metadata_location for pin in self.pins)

    @property
    def shape(self) -> tuple[tuple[str, str], ...]:
        return tuple(pin.shape for pin in self.pins)

    def close(self) -> None:
        capture, self._capture = self._capture, None
        if capture is not None:
            capture.close()


def take(holes: Sequence[Hole], lake: LakeReader, live: LiveSource | None, mode: LiveWal, clock: Clock) -> Pins:
    """Pin every hole's table at this moment.

    With `required`, raises Unavailable where a log cannot be read or moves on faster than it can be read; with `best_effort` those
    tables are read from Iceberg alone. Raises NotFound for a table that is gone.
    """
    if not holes:
        return Pins(())
    before = _load(holes, lake)
    # A table at a named snapshot or time has no live rows, whatever the mode.
    wanted = [at for at, hole in enumerate(holes) if hole.at is None]
    if live is None or mode == "off" or not wanted:
        return Pins([Pin(hole, state) for hole, state in zip(holes, before, strict=True)])
    pipelines = _pipelines(before, wanted)
    for attempt in range(_ATTEMPTS):
        if not pipelines:
            return Pins([Pin(hole, state) for hole, state in zip(holes, before, strict=True)])
        try:
            capture = live.capture(pipelines)
        except Unavailable:
            if mode == "required":
                raise
            return Pins([Pin(hole, state) for hole, state in zip(holes, _load(holes, lake), strict=True)])
        try:
            states = _load(holes, lake)
            now = _pipelines(states, wanted)
            if now <= pipelines:
                rows = {at: capture.rows(states[at]) for at in wanted}
                return Pins([Pin(hole, states[at], rows.get(at)) for at, hole in enumerate(holes)], capture)
            pipelines |= now
        except StaleCapture:
            pass
        except BaseException:
            capture.close()
            raise
        capture.close()
        clock.sleep(min(_BACKOFF_MAX_S, _BACKOFF_FIRST_S * 2**attempt) * random.uniform(0.5, 1.0))
        before = _load(holes, lake)
        pipelines |= _pipelines(before, wanted)
    if mode == "best_effort":
        return Pins([Pin(hole, state) for hole, state in zip(holes, before, strict=True)])
    tables = ", ".join(sorted({table_label(hole.identifier) for hole in holes}))
    raise Unavailable(
        f"the live rows of {tables} moved on {_ATTEMPTS} times while they were read; try again, or set live_wal to best_effort"
    )


def _load(holes: Sequence[Hole], lake: LakeReader) -> list[TableState]:
    """One reading per table, however many holes it has."""
    states = {identifier: lake.load(identifier) for identifier in dict.fromkeys(hole.identifier for hole in holes)}
    return [states[hole.identifier] for hole in holes]


def _pipelines(states: Sequence[TableState], wanted: Sequence[int]) -> frozenset[str]:
    return frozenset().union(*(states[at].pipelines for at in wanted))
