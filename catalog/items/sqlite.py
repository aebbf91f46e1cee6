"""The item table in one SQLite file: the embedded control plane. Several tables share a file, several processes share it too.

Durability (rule 20): WAL mode with `synchronous=FULL`, so a commit is on disk when the call returns. Writes take `BEGIN IMMEDIATE`,
test their conditions and commit; a process waits a bounded time for another's transaction, with jitter. Reads run on connections
of their own and never wait for a writer's fsync. No transaction stays open between calls, so a slow reader of `query` cannot hold
the file's write-ahead log.

Format: `application_id` marks the file as ours, `user_version` is its format number. Each table has (pk, sk, attributes), where
attributes is a JSON object without the keys; bytes are `{"b64": "..."}`, lists arrays.
"""

from __future__ import annotations

import os
import random
import re
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

from catalog import failpoint
from catalog.errors import ConfigurationError, DataCorruption, Internal, OutcomeUnknown, SkipprError, Unavailable
from catalog.items.checks import applied, check_key, check_transaction, checked, op_key, prefix_end
from catalog.items.sqlite_codec import decode_item, encode_item
from catalog.items.table import ConditionFailed, Delete, Expect, Item, Op, Put, Update, Value, holds

__all__ = ["FILE_FORMAT", "SqliteItemTable"]

FILE_FORMAT: Final = 1
_APPLICATION_ID: Final = 0x736B7072
_TABLE_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_WAIT_S: Final = 15.0
_PAUSE_MAX_S: Final = 0.005
_IDLE_READERS_MAX: Final = 8
_PAGE_ITEMS: Final = 1000
_PAGE_BYTES: Final = 1024 * 1024

_T = TypeVar("_T")
# Open tables of this process, and after a fork what the child inherited: kept alive, because SQLite allows it not even to be closed.
_tables: weakref.WeakSet[SqliteItemTable] = weakref.WeakSet()
_tables_lock = threading.Lock()
_inherited: list[SqliteItemTable] = []


class _Connections:
    """The connections of one process to the file: one writer behind a lock, a few idle readers."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.write_lock = threading.Lock()
        self.writer: sqlite3.Connection | None = None
        self.readers: list[sqlite3.Connection] = []
        self.closed = False


class SqliteItemTable:
    """An `ItemTable` in one SQLite file. Safe for threads and processes; every write is durable on return.

    Opening creates file, folder and table where they are missing. Raises ConfigurationError (unreadable, not ours, newer format),
    DataCorruption (no database), Unavailable. A forked child that did not execute a program cannot use a file its parent had open:
    SQLite's idea of the locks it holds is wrong there, so every use raises Internal instead.
    """

    def __init__(self, path: str | Path, table: str, *, wait_s: float = _WAIT_S) -> None:
        if not _TABLE_NAME.fullmatch(table) or table.startswith("sqlite_"):
            raise ConfigurationError(f"item table {table!r} of {path}: use a-z 0-9 _, starting with a letter, at most 63")
        self._path = str(Path(path).absolute())
        self._table = table
        self._wait_s = wait_s
        self._poisoned: str | None = None
        self._get_sql = f"SELECT attributes FROM {table} WHERE pk = ? AND sk = ?"
        self._connections = _Connections()
        _create(self._path, table, wait_s)
        self._inode = _inode(self._path)
        with _tables_lock:
            _tables.add(self)

    @property
    def name(self) -> str:
        return f"{self._path}:{self._table}"

    def get(self, pk: str, sk: str) -> Item | None:
        check_key(pk, sk)
        return self._read(lambda connection: self._get(connection, pk, sk))

    def query(self, pk: str, sk_prefix: str = "") -> Iterator[Item]:
        check_key(pk, sk_prefix or "-")
        return self._pages(pk, sk_prefix)

    def put(self, item: Item, expect: Expect) -> None:
        self._write((checked(Put(item, expect)),))

    def update(self, update: Update) -> Item:
        (item,) = self._write((checked(update),))
        if item is None:
            raise Internal(f"{self.name}: an update of {update.pk!r} {update.sk!r} left no item")
        return item

    def delete(self, pk: str, sk: str, expect: Expect) -> None:
        self._write((checked(Delete(pk, sk, expect)),))

    def transact(self, ops: Sequence[Op]) -> None:
        check_transaction(ops)
        self._write(ops)

    def close(self) -> None:
        own = self._connections
        if own.pid != os.getpid():
            return
        with own.write_lock:
            own.closed = True
            if own.writer is not None:
                own.writer.close()
                own.writer = None
            while own.readers:
                own.readers.pop().close()

    def _get(self, connection: sqlite3.Connection, pk: str, sk: str) -> dict[str, Value] | None:
        row = connection.execute(self._get_sql, (pk, sk)).fetchone()
        return None if row is None else decode_item(pk, sk, row[0], self.name)

    def _pages(self, pk: str, sk_prefix: str) -> Iterator[Item]:
        lower, upper, strict = sk_prefix, prefix_end(sk_prefix), False
        while True:
            page = self._read(partial(self._page, pk=pk, lower=lower, strict=strict, upper=upper))
            if not page:
                return
            yield from page
            lower, strict = str(page[-1]["SK"]), True

    def _page(self, connection: sqlite3.Connection, pk: str, lower: str, strict: bool, upper: str | None) -> list[Item]:
        """Up to 1,000 items or 1 MiB; an empty page is the end."""
        sql = f"SELECT sk, attributes FROM {self._table} WHERE pk = ? AND sk {'>' if strict else '>='} ?"
        bounds = (pk, lower) if upper is None else (pk, lower, upper)
        cursor = connection.execute(f"{sql}{'' if upper is None else ' AND sk < ?'} ORDER BY sk LIMIT {_PAGE_ITEMS}", bounds)
        page: list[Item] = []
        size_bytes = 0
        try:
            for sk, attributes in cursor:
                page.append(decode_item(pk, sk, attributes, self.name))
                size_bytes += len(attributes)
                if size_bytes >= _PAGE_BYTES:
                    break
        finally:
            cursor.close()
        return page

    def _own(self) -> _Connections:
        own = self._connections
        if own.pid != os.getpid():
            raise _forked(self._path)
        if own.closed:
            raise Internal(f"{self.name} is used after it was closed")
        return own

    def _read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        own = self._own()
        try:
            connection = own.readers.pop()
        except IndexError:
            connection = self._open()
        try:
            return _patiently(lambda: work(connection), self._path, self._wait_s)
        finally:
            own.readers.append(connection)
            if own.closed or len(own.readers) > _IDLE_READERS_MAX:
                with suppress(IndexError):
                    own.readers.pop().close()

    def _open(self) -> sqlite3.Connection:
        """A new connection to the very file this table was opened on."""
        connection = _connect(self._path, self._wait_s)
        if _inode(self._path) != self._inode:
            connection.close()
            raise self._replaced()
        return connection

    def _replaced(self) -> DataCorruption:
        return DataCorruption(f"{self._path} was removed or replaced while it was in use; put it back and start again")

    def _write(self, ops: Sequence[Op]) -> list[dict[str, Value] | None]:
        own = self._own()
        with own.write_lock:
            if own.closed:
                raise Internal(f"{self.name} is used after it was closed")
            if self._poisoned is not None:
                raise Unavailable(self._poisoned)
            if _inode(self._path) != self._inode:
                raise self._replaced()
            if own.writer is None:
                own.writer = self._open()
            with self._transaction(own.writer) as connection:
                return self._apply(connection, ops)

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        _patiently(lambda: connection.execute("BEGIN IMMEDIATE"), self._path, self._wait_s)
        try:
            with _translated(self._path):
                yield connection
                failpoint.hit("items.sqlite.before_commit")
            self._commit(connection)
        except BaseException:
            if connection.in_transaction:
                with suppress(sqlite3.Error):  # the error that brought us here is the one to tell
                    connection.execute("ROLLBACK")
            raise
        try:
            failpoint.hit("items.sqlite.committed")
        except OSError as error:
            raise OutcomeUnknown(f"{self._path}: no answer to a commit ({error})") from error

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if not _code(error).startswith("SQLITE_IOERR"):
                raise _translate(error, self._path) from error
            # The commit frame may be in the file without being durable: it can still appear at the next start. After a failed
            # fsync nothing written through this file handle can be trusted, so this process writes no more.
            self._poisoned = (
                f"{self._path}: an earlier commit failed with {_code(error)}; no more writes from this process: check the disk, restart"
            )
            raise OutcomeUnknown(f"{self._path}: commit failed with {_code(error)}: {error}") from error

    def _apply(self, connection: sqlite3.Connection, ops: Sequence[Op]) -> list[dict[str, Value] | None]:
        before = [self._get(connection, *op_key(op)) for op in ops]
        failed = [i for i, op in enumerate(ops) if not holds(op.expect, before[i])]
        if failed:
            raise ConditionFailed(f"{self.name}: the condition on {[op_key(ops[i]) for i in failed]} does not hold", before, failed)
        after = [applied(op, item) for op, item in zip(ops, before, strict=True)]
        for op, item in zip(ops, after, strict=True):
            pk, sk = op_key(op)
            if item is None:
                connection.execute(f"DELETE FROM {self._table} WHERE pk = ? AND sk = ?", (pk, sk))
            else:
                connection.execute(f"INSERT OR REPLACE INTO {self._table} VALUES (?, ?, ?)", (pk, sk, encode_item(item)))
        return after


def _create(path: str, table: str, wait_s: float) -> None:
    """Make sure of folder, file, format and table. The folder entry is durable on return."""
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{path}: its folder cannot be made ({error}): choose another path or mend the folder") from error
    connection = _connect(path, wait_s, create=True)
    try:
        if _patiently(lambda: _ready(connection, path, table), path, wait_s):
            return
        _patiently(lambda: connection.execute("BEGIN IMMEDIATE"), path, wait_s)
        with _translated(path):
            _check_owner(connection, path)
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {table} (pk TEXT NOT NULL, sk TEXT NOT NULL, attributes TEXT NOT NULL, "
                "PRIMARY KEY (pk, sk)) WITHOUT ROWID"
            )
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FILE_FORMAT}")
            connection.execute("COMMIT")
    finally:
        connection.close()
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _ready(connection: sqlite3.Connection, path: str, table: str) -> bool:
    """Whether file and table are there. One read transaction: between two reads of their own another process may create the file."""
    connection.execute("BEGIN")
    try:
        _check_owner(connection, path)
        found = connection.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone()
    finally:
        connection.execute("ROLLBACK")
    return bool(found[0])


def _check_owner(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a file of another program or of a newer format, by name."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application_id != _APPLICATION_ID:
        (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application_id or version or objects:
            raise ConfigurationError(f"{path} is an SQLite database of another program: choose another path for skippr's own file")
    elif version > FILE_FORMAT:
        raise ConfigurationError(
            f"{path} has format {version}; this skipprd reads formats up to {FILE_FORMAT}: run the newer skipprd that wrote it"
        )


def _connect(path: str, wait_s: float, *, create: bool = False) -> sqlite3.Connection:
    """A connection in WAL mode that is durable at each commit and waits for nobody by itself."""
    inode = _inode(path)
    if any(table._inode == inode for table in _inherited):
        raise _forked(path)
    uri = f"file:{quote(path)}?mode={'rwc' if create else 'rw'}"
    with _translated(path, opening=create):
        connection = sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        mode = _patiently(lambda: _configure(connection), path, wait_s, opening=create)
    except BaseException:
        connection.close()
        raise
    if mode != "wal":
        connection.close()
        raise ConfigurationError(
            f"{path}: SQLite cannot use WAL mode there (journal mode is {mode}): the file system lacks shared memory or locks; use a "
            "local disk"
        )
    return connection


def _configure(connection: sqlite3.Connection) -> str:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")  # what the same promise needs on macOS; no difference elsewhere
    connection.execute("PRAGMA checkpoint_fullfsync = ON")
    return str(mode)


def _patiently(work: Callable[[], _T], path: str, wait_s: float, *, opening: bool = False) -> _T:
    """Run `work`, again with jitter while another process holds the file, for at most `wait_s`."""
    deadline, attempt = time.monotonic() + wait_s, 0
    while True:
        try:
            return work()
        except sqlite3.Error as error:
            if not _code(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or time.monotonic() > deadline:
                raise _translate(error, path, opening=opening) from error
        attempt += 1
        time.sleep(random.uniform(0.0001, min(_PAUSE_MAX_S, 0.0005 * 2**min(attempt, 6))))


@contextmanager
def _translated(path: str, *, opening: bool = False) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise _translate(error, path, opening=opening) from error
    except OSError as error:
        raise Unavailable(f"{path}: {error}; check the disk, then start again") from error


def _code(error: sqlite3.Error) -> str:
    return str(getattr(error, "sqlite_errorname", "") or "SQLITE_ERROR")


def _translate(error: sqlite3.Error, path: str, *, opening: bool = False) -> SkipprError:
    """The error of our tree for SQLite's, naming the file and what to do."""
    code = _code(error)
    told = f"{path}: {error} ({code})"
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return Unavailable(f"{told}: another process holds it; find it with `fuser {path}`, or try again")
    if code.startswith("SQLITE_FULL"):
        return Unavailable(f"{told}: the disk is full; free space, then start again")
    if code.startswith("SQLITE_IOERR"):
        return Unavailable(f"{told}: the disk does not read or write; check it, then start again")
    if code.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return DataCorruption(f"{told}: it is no intact SQLite database; restore it from a backup")
    if code.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
        return ConfigurationError(f"{told}: this user must be able to write the file and its folder")
    if code.startswith("SQLITE_CANTOPEN"):
        remedy = "the path must name a file in a folder that this user can read and write"
        return ConfigurationError(f"{told}: {remedy}") if opening else Unavailable(f"{told}: {remedy}")
    return Internal(told)


def _inode(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return (0, 0)
    except OSError as error:
        raise Unavailable(f"{path}: {error}; check the disk, then start again") from error
    return (status.st_dev, status.st_ino)


def _forked(path: str) -> Internal:
    return Internal(f"{path} was open before this process was forked; start the child as a program of its own (spawn)")


def _after_fork_in_child() -> None:
    global _tables_lock
    _tables_lock = threading.Lock()
    _inherited.extend(table for table in _tables if not table._connections.closed)
    _tables.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
