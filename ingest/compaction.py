"""What a compaction is going to do, as pure functions of entry headers and marks (rules 10 to 13, docs/protocol.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from catalog.errors import DataCorruption
from catalog.lake import Identifier, Mark, table_label

__all__ = ["EntryGroup", "EntryHeader", "Take", "check_mark", "log_bytes", "plan", "reclaimable", "tables_of", "windows"]


class EntryGroup(Protocol):
    """Rows of one table in an entry; `length_bytes` is what they take in the log."""

    @property
    def identifier(self) -> Identifier: ...

    @property
    def rows(self) -> int: ...

    @property
    def length_bytes(self) -> int: ...


class EntryHeader(Protocol):
    """What an entry says about itself. Indexes count without a gap; epochs never fall along the log."""

    @property
    def index(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def groups(self) -> Sequence[EntryGroup]: ...


@dataclass(frozen=True, slots=True)
class Take:
    """Entries whose rows for one table go into one commit that moves its mark from `after` to `upto`."""

    after: Mark
    upto: Mark
    indexes: tuple[int, ...]
    rows: int
    length_bytes: int


def check_mark(identifier: Identifier, wal_id: str, mark: Mark, headers: Sequence[EntryHeader], published: int, fed: int) -> None:
    """Raise DataCorruption where table and log cannot belong together (rules 12 and 13). `fed` is the table's entry in `log.fed`."""
    label = table_label(identifier)
    restored = "table and log do not belong together: was one of them restored from a backup?"
    if mark.index < fed:
        raise DataCorruption(
            f"{label} holds log {wal_id} up to entry {mark.index}, but entries up to {fed} that fed it are reclaimed: rows between are "
            f"gone; {restored}"
        )
    if mark.index > published:
        raise DataCorruption(f"{label} holds log {wal_id} up to entry {mark.index}, but the log ends at {published}; {restored}")
    for header in headers:
        if header.index == mark.index and header.epoch != mark.epoch:
            raise DataCorruption(f"{label} has mark {mark} of log {wal_id}, whose entry of that index has epoch {header.epoch}; {restored}")


def plan(headers: Sequence[EntryHeader], identifier: Identifier, mark: Mark, bytes_max: int) -> list[Take]:
    """The commits that bring the table from `mark` through the last entry that feeds it; each at least one entry, in order."""
    takes: list[Take] = []
    indexes: list[int] = []
    rows, size, after, last = 0, 0, mark, mark
    for header in headers:
        groups = [group for group in header.groups if group.identifier == identifier]
        if header.index <= mark.index or not groups:
            continue
        added = sum(group.length_bytes for group in groups)
        if indexes and size + added > bytes_max:
            takes.append(Take(after, last, tuple(indexes), rows, size))
            indexes, rows, size, after = [], 0, 0, last
        indexes.append(header.index)
        rows += sum(group.rows for group in groups)
        size += added
        last = Mark(header.epoch, header.index)
    if indexes:
        takes.append(Take(after, last, tuple(indexes), rows, size))
    return takes


def windows(headers: Sequence[EntryHeader], bytes_max: int) -> Iterator[list[EntryHeader]]:
    """The entries in runs of at most `bytes_max` bytes, each at least one entry."""
    window: list[EntryHeader] = []
    size = 0
    for header in headers:
        added = log_bytes(header)
        if window and size + added > bytes_max:
            yield window
            window, size = [], 0
        window.append(header)
        size += added
    if window:
        yield window


def reclaimable(headers: Sequence[EntryHeader], marks: Mapping[Identifier, Mark], base: int) -> int:
    """The last index of the prefix whose entries every table they feed holds; `base` where there is none (rule 13)."""
    upto = base
    for header in headers:
        if any(marks[group.identifier].index < header.index for group in header.groups):
            break
        upto = header.index
    return upto


def log_bytes(header: EntryHeader) -> int:
    """What the entry's rows take in the log."""
    return sum(group.length_bytes for group in header.groups)


def tables_of(headers: Sequence[EntryHeader]) -> list[Identifier]:
    """Tables the entries feed, in order of their first rows."""
    return list(dict.fromkeys(group.identifier for header in headers for group in header.groups))
