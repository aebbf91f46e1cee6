"""One seed, from the first byte to the last check."""

from __future__ import annotations

from collections import Counter

import pytest

from catalog.control import offsets
from catalog.errors import SkipprError
from tests.simulation.faults import Chance
from tests.simulation.machine import PARTITIONS, Faults, Machine, Process, Violation, install

__all__ = ["run_seed"]

ACTIONS = 30


def run_seed(seed: int, *, full: bool = True, trace: list[str] | None = None) -> Counter[str]:
    """Run one seed; what happened, counted. Every step is appended to `trace`. Raises Violation, naming the seed.

    `full` False: the database does not sync its transactions (rule 20 switched off).
    """
    chance = Chance(seed)
    machine = Machine(chance, _faults(chance), full=full, trace=trace)
    install(machine)
    try:
        with pytest.MonkeyPatch.context() as patch:
            # In some seeds an entry's rows do not fit one transaction, so that a crash may leave some of them behind.
            patch.setattr(offsets, "TRANSACT_OPS_MAX", (offsets.__dict__["TRANSACT_OPS_MAX"], 2, 3)[chance.below(3)])
            _Schedule(machine).run()
    except SkipprError as error:
        raise _violation(seed, f"{type(error).__name__}: {error}") from error
    except Violation as error:
        raise _violation(seed, str(error)) from error
    except Exception as error:
        error.add_note(f"in simulated seed {seed}")
        raise
    finally:
        install(None)
    return machine.counts


def _violation(seed: int, what: str) -> Violation:
    return Violation(f"seed {seed}: {what}\nreplay: python -m tests.simulation --seed {seed} --trace")


def _faults(chance: Chance) -> Faults:
    """Each seed has its own mix: some faults only show where others are rare."""
    def pick(*options: float) -> float:
        return options[chance.below(len(options))]

    return Faults(
        crash=pick(0.0, 0.002, 0.006, 0.02), power=pick(0.0, 0.001, 0.004), disk=pick(0.0, 0.0, 0.004), items=pick(0.0, 0.0, 0.05, 0.15),
        pause=pick(0.0, 0.01, 0.05), stale=pick(0.0, 0.1), opener=pick(0.1, 0.5),
    )


class _Schedule:
    """Which process does what next."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._chance = machine, machine.chance

    def run(self) -> None:
        machine = self._machine
        machine.nested = self._nested
        for _ in range(ACTIONS):
            machine.clock.advance(1.0)
            for partition in PARTITIONS:
                machine.written[partition] += self._chance.below(3)
            self._act()
            machine.check_rows()
        self._finish()

    def _act(self) -> None:
        machine, chance = self._machine, self._chance
        if not machine.processes:
            self._start()
            return
        process = machine.processes[chance.below(len(machine.processes))]
        draw = chance.below(100)
        if draw < 45:
            process.attempt("append", process.append)
        elif draw < 65:
            process.attempt("compact", process.compact)
        elif draw < 80:
            self._query()
        elif draw < 85:
            process.attempt("close", process.close)
        elif draw < 88:
            process.die()
        elif draw < 91:
            machine.power_cut()
        elif draw < 94 and machine.store.late:
            machine.store.land(chance)
        elif chance.happens(machine.faults.opener):
            self._start()

    def _start(self) -> None:
        process = self._machine.new_process()
        if process.attempt("start", process.start) and len(self._machine.processes) == 1:
            self._machine.check_exact("after recovery")

    def _query(self) -> None:
        machine = self._machine
        if machine.queries and self._chance.happens(0.5):
            machine.finish_query(self._chance.below(len(machine.queries)))
        else:
            machine.begin_query()

    def _nested(self, paused: Process) -> None:
        """While a process is paused in the middle of a step: its other thread, a reader, or a second writer."""
        machine, chance = self._machine, self._chance
        machine.nested = None
        try:
            draw = chance.below(10)
            if draw < 3:
                self._query()
            elif draw < 6:
                self._other_thread(paused)
            elif chance.happens(machine.faults.opener):
                self._rival()
        finally:
            machine.nested = self._nested

    def _other_thread(self, paused: Process) -> None:
        if paused.busy == "append" and paused.compactor is not None:
            paused.attempt("compact", paused.compact)
        elif paused.busy == "compact":
            paused.attempt("append", paused.append)

    def _rival(self) -> None:
        """A second writer on the same folder: the lock keeps it out; where it does not, it works for a while."""
        rival = self._machine.new_process()
        if not rival.attempt("start", rival.start):
            return
        for _ in range(self._chance.between(1, 6)):
            if rival.alive:
                rival.attempt("append", rival.append)
            if rival.alive and self._chance.happens(0.5):
                rival.attempt("compact", rival.compact)

    def _finish(self) -> None:
        """The faults stop; a fresh process must bring everything home, and it must stay there when the power goes."""
        machine = self._machine
        while machine.queries:
            machine.finish_query(0)
        machine.quiet = True
        for process in list(machine.processes):
            process.die()
        while machine.store.late:
            machine.store.land(self._chance)
        machine.note("finish")
        process = self._fresh()
        while process.cursors != machine.written:
            process.attempt("append", process.append)
        process.attempt("compact", process.compact)
        machine.check_landed("at the end")
        machine.power_cut()
        self._fresh()
        machine.check_landed("after the last power cut")

    def _fresh(self) -> Process:
        process = self._machine.new_process()
        if not process.attempt("start", process.start):
            raise Violation("without faults a process does not start")
        self._machine.check_exact("after the last recovery")
        return process
