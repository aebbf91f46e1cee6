"""Standard input, with an id and without."""

from __future__ import annotations

import os
import threading
import time
from io import BytesIO
from pathlib import Path

import pytest

from catalog.errors import ConfigurationError, exit_code
from ingest.pipeline import IngestPipeline
from tests.helpers_ingest import World, lines


def _stream(first: int, last: int) -> BytesIO:
    return BytesIO(lines({"id": i} for i in range(first, last)).encode())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_without_an_id_every_run_is_a_partition_of_its_own(world: World) -> None:
    first, second = (world.run(stdin=_stream(0, 3)) for _ in range(2))
    assert (first.read, second.read) == (3, 3)
    assert first.new_partitions != second.new_partitions
    assert all(name.startswith("run-") for name in first.new_partitions + second.new_partitions)
    assert world.ids() == [0, 0, 1, 1, 2, 2]


def test_with_an_id_a_run_goes_on_behind_what_was_read(world: World) -> None:
    assert world.run(stdin=_stream(0, 3), stdin_id="numbers").new_partitions == ()
    assert world.run(stdin=_stream(0, 3), stdin_id="numbers").read == 0
    assert world.run(stdin=_stream(0, 5), stdin_id="numbers").read == 2
    assert world.run(stdin=_stream(0, 2), stdin_id="other").read == 2
    assert world.ids() == [0, 0, 1, 1, 2, 3, 4]


@pytest.mark.parametrize("stream", [_stream(1, 9), _stream(0, 1), BytesIO()])
def test_another_beginning_under_the_same_id_is_refused(world: World, stream: BytesIO) -> None:
    world.run(stdin=_stream(0, 3), stdin_id="numbers")
    with pytest.raises(ConfigurationError, match=r"does not begin like the stream that --stdin-id 'numbers' names") as refused:
        world.run(stdin=stream, stdin_id="numbers")
    assert exit_code(refused.value) == 3
    assert world.ids() == [0, 1, 2]


def test_a_reset_forgets_the_beginning(world: World) -> None:
    world.run(stdin=_stream(0, 3), stdin_id="numbers")
    assert world.run(stdin=_stream(7, 9), stdin_id="numbers", reset_offsets=True).read == 2


def test_an_empty_stream_is_no_partition(world: World) -> None:
    summary = world.run(stdin=BytesIO())
    assert (summary.read, summary.partitions, summary.segments) == (0, 0, 0)


def test_a_pipe_is_read_as_it_comes_and_stop_ends_the_wait(world: World) -> None:
    reading, writing = os.pipe()
    os.write(writing, lines({"id": i} for i in range(3)).encode() + b'{"id": 3')
    source = os.fdopen(reading, "rb")
    stopping: list[threading.Thread] = []

    def stop_once_read(pipeline: IngestPipeline) -> None:
        def watch() -> None:
            while pipeline.snapshot().read_records < 3:
                time.sleep(0.01)
            pipeline.stop()

        stopping.append(threading.Thread(target=watch))
        stopping[0].start()

    summary = world.run(stdin=source, stdin_id="pipe", once=False, during=stop_once_read)
    stopping[0].join()
    os.close(writing)
    source.close()
    assert summary.read == 3, "the line that is not whole yet is left for the next run"
    assert world.run(stdin=_stream(0, 5), stdin_id="pipe").read == 2
    assert world.ids() == [0, 1, 2, 3, 4]
