"""Real processes on one SQLite catalog and one warehouse: nothing lost, nothing twice, nothing unreferenced but losers' data."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from pyiceberg.exceptions import CommitFailedException

from catalog.lake import Mark
from tests.helpers_iceberg import TABLE, ids, warehouse_files
from tests.helpers_races import ENTRIES, ROWS, append_by_pyiceberg, compact, open_lake

_ROWS_OF_A_LOG = ENTRIES * ROWS


def test_two_compactors_of_one_log_and_of_others_and_a_foreign_writer(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(5, mp_context=context) as pool:
        jobs = [
            pool.submit(compact, tmp_path, "w1", 0, 1),
            pool.submit(compact, tmp_path, "w1", 0, 2),
            pool.submit(compact, tmp_path, "w2", 1000, 3),
            pool.submit(compact, tmp_path, "w2", 1000, 6),
        ]
        foreign = pool.submit(append_by_pyiceberg, tmp_path, 5000)
        commits = sum(job.result(timeout=120) for job in jobs)
        try:
            appended = foreign.result(timeout=120)
        except CommitFailedException:
            appended = -1  # pyiceberg does not repeat a property change; it gave up before its first row
    lake = open_lake(tmp_path)
    expected = [*range(_ROWS_OF_A_LOG), *range(1000, 1000 + _ROWS_OF_A_LOG)]
    found = ids(lake)
    assert [i for i in found if i < 5000] == expected
    assert len(found) - len(expected) == max(appended, 0)
    state = lake.load(TABLE)
    assert {state.mark("w1"), state.mark("w2")} == {Mark(1, ENTRIES)}
    assert {"default#default#w1", "default#default#w2"} <= state.pipelines
    assert commits >= 2 * ENTRIES // 3
    table = lake.catalog.load_table(TABLE)
    reachable = {Path(path).name for path in [table.metadata_location, *(e.metadata_file for e in table.metadata.metadata_log)]}
    assert reachable <= warehouse_files(lake, ".metadata.json")
    assert lake.catalog.pointer(TABLE).generation == len(table.metadata.metadata_log) + 1
