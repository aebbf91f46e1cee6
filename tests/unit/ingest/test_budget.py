"""The memory budget and the channels between stages."""

from __future__ import annotations

import threading

import pytest

from ingest.budget import ByteBudget, Channel, Stopped


def _in_thread(work: object) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)  # type: ignore[arg-type]
    thread.start()
    return thread


def test_takers_wait_for_room_and_a_large_first_one_passes() -> None:
    budget = ByteBudget(10, lambda: False)
    budget.take(50)
    order: list[str] = []

    def second() -> None:
        budget.take(4)
        order.append("taken")

    thread = _in_thread(second)
    thread.join(0.05)
    assert order == []
    budget.change(50, 6)
    thread.join(5)
    assert order == ["taken"]
    assert budget.used_bytes == 10


def test_who_waits_is_told_of_the_end() -> None:
    ended = threading.Event()
    budget = ByteBudget(10, ended.is_set)
    channel: Channel[int] = Channel(1, ended.is_set)
    budget.take(10)
    channel.put(1)
    seen: list[str] = []

    def waits(name: str, work: object) -> threading.Thread:
        def run() -> None:
            try:
                work()  # type: ignore[operator]
            except Stopped:
                seen.append(name)

        return _in_thread(run)

    threads = [waits("take", lambda: budget.take(1)), waits("put", lambda: channel.put(2))]
    ended.set()
    for thread in threads:
        thread.join(5)
    assert sorted(seen) == ["put", "take"]
    with pytest.raises(Stopped):
        channel.get()


def test_settle_waits_until_little_is_held_or_patience_ends() -> None:
    budget = ByteBudget(10, lambda: False)
    budget.take(8)
    budget.settle(4, 0.01)
    assert budget.used_bytes == 8
    thread = _in_thread(lambda: budget.settle(4, 60))
    budget.change(8, 3)
    thread.join(5)
    assert not thread.is_alive()


def test_a_channel_keeps_order_and_ends_when_it_is_empty() -> None:
    channel: Channel[int] = Channel(10, lambda: False)
    for number in range(3):
        channel.put(number)
    assert channel.get(0.0) == 0
    channel.end()
    assert not channel.ended
    assert [channel.get(), channel.get(), channel.get()] == [1, 2, None]
    assert channel.ended


def test_an_empty_channel_that_goes_on_gives_nothing_after_the_timeout() -> None:
    channel: Channel[int] = Channel(1, lambda: False)
    assert channel.get(0.0) is None
    assert not channel.ended
