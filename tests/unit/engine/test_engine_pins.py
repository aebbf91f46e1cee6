"""The order of a live read, and what happens when logs are stale, unreachable or gained a pipeline meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.clock import ManualClock
from catalog.errors import DataCorruption, NotFound, Unavailable
from catalog.lake import Identifier, StaleCapture
from flight.engine.pins import LiveWal, Pins, take
from flight.engine.resolve import Hole
from flight.engine.trees import TimeTravel
from tests.helpers_engine import FakeLive, X, make_lake
from tests.helpers_lake import FakeLake

GOLD_X: Identifier = ("gold", "x")
SILVER_X: Identifier = ("silver", "x")


@pytest.fixture
def lake(tmp_path: Path) -> FakeLake:
    made = make_lake(tmp_path)
    made.pipelines = {GOLD_X: frozenset(["t#w#p"])}
    return made


def hole(identifier: Identifier, at: TimeTravel | None = None) -> Hole:
    return Hole(identifier[0], identifier[1], identifier, at)


def pin(lake: FakeLake, live: FakeLive, *holes: Hole, mode: LiveWal = "required") -> Pins:
    lake.on_load = lambda identifier: live.log.append("load " + ".".join(identifier))
    return take(holes, lake, live, mode, ManualClock())


def test_logs_are_captured_before_the_pointers_are_read(lake: FakeLake) -> None:
    live = FakeLive({GOLD_X: X})
    pins = pin(lake, live, hole(GOLD_X))
    assert live.log == ["load gold.x", "capture t#w#p", "load gold.x", "rows"]
    assert pins.pins[0].live is live.tables[GOLD_X]
    assert live.open == 1
    pins.close()
    pins.close()
    assert live.open == 0


def test_a_table_is_read_once_however_often_it_is_named(lake: FakeLake) -> None:
    live = FakeLive({GOLD_X: X})
    pin(lake, live, hole(GOLD_X), hole(GOLD_X)).close()
    assert live.log.count("load gold.x") == 2


def test_a_stale_capture_starts_over(lake: FakeLake) -> None:
    live = FakeLive({GOLD_X: X})
    live.stale = [StaleCapture("old"), StaleCapture("old")]
    pins = pin(lake, live, hole(GOLD_X))
    assert live.captures == 3
    assert live.open == 1
    assert pins.pins[0].live is not None


def test_always_stale_is_unavailable_and_best_effort_reads_iceberg(lake: FakeLake) -> None:
    live = FakeLive({GOLD_X: X})
    live.stale = [StaleCapture("old")] * 100
    with pytest.raises(Unavailable, match=r"gold\.x moved on .* live_wal"):
        pin(lake, live, hole(GOLD_X))
    assert live.open == 0
    pins = pin(lake, live, hole(GOLD_X), mode="best_effort")
    assert pins.pins[0].live is None
    assert live.open == 0


def test_an_unreachable_log(lake: FakeLake) -> None:
    live = FakeLive({GOLD_X: X})
    live.fail = [Unavailable("log p cannot be read")] * 2
    with pytest.raises(Unavailable, match="log p"):
        pin(lake, live, hole(GOLD_X))
    assert pin(lake, live, hole(GOLD_X), mode="best_effort").pins[0].live is None
    assert live.open == 0


def test_off_and_tables_without_pipelines_never_ask(lake: FakeLake) -> None:
    live = FakeLive({GOLD_X: X, SILVER_X: X})
    assert pin(lake, live, hole(GOLD_X), mode="off").pins[0].live is None
    assert pin(lake, live, hole(SILVER_X)).pins[0].live is None
    assert live.captures == 0


def test_time_travel_never_has_live_rows(lake: FakeLake) -> None:
    live = FakeLive({GOLD_X: X})
    travelled = hole(GOLD_X, TimeTravel("snapshot_from_id", "1"))
    assert pin(lake, live, travelled).pins[0].live is None
    assert live.captures == 0
    both = pin(lake, live, travelled, hole(GOLD_X))
    assert [one.live is None for one in both.pins] == [True, False]
    both.close()


def test_a_pipeline_that_joins_meanwhile_is_captured_too(lake: FakeLake) -> None:
    live = FakeLive({GOLD_X: X})
    real_capture = live.capture

    def capture(pipelines: object) -> object:
        lake.pipelines[GOLD_X] = frozenset(["t#w#p", "t#w#q"])
        lake._states.clear()
        return real_capture(pipelines)  # type: ignore[arg-type]

    live.capture = capture  # type: ignore[assignment, method-assign]
    pin(lake, live, hole(GOLD_X)).close()
    assert [entry for entry in live.log if entry.startswith("capture")] == ["capture t#w#p", "capture t#w#p,t#w#q"]
    assert live.open == 0


def test_other_errors_free_the_capture(lake: FakeLake) -> None:
    live = FakeLive({GOLD_X: X})
    live.stale = [DataCorruption("broken")]
    with pytest.raises(DataCorruption):
        pin(lake, live, hole(GOLD_X))
    assert live.open == 0
    del lake.catalog.pointers[GOLD_X]
    with pytest.raises(NotFound):
        pin(lake, live, hole(GOLD_X))
