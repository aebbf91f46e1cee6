"""The SQLite item table where files, disks and processes misbehave. The contract it shares with others is tested there."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from catalog import failpoint
from catalog.errors import ConfigurationError, DataCorruption, Internal, OutcomeUnknown, SkipprError, Unavailable
from catalog.items import sqlite
from catalog.items.sqlite import FILE_FORMAT, SqliteItemTable, _translate
from catalog.items.table import ABSENT, EXISTS, ConditionFailed, Equals, Put, Update


def item(sk: str, **attributes: object) -> dict[str, object]:
    return {"PK": "p", "SK": sk, **attributes}


def keys(path: Path, table: str = "offsets") -> list[object]:
    opened = SqliteItemTable(path, table)
    found = [row["SK"] for row in opened.query("p")]
    opened.close()
    return found


def test_tables_of_one_file_are_apart(tmp_path: Path) -> None:
    offsets, catalog = SqliteItemTable(tmp_path / "c.db", "offsets"), SqliteItemTable(tmp_path / "c.db", "catalog")
    offsets.put(item("s", n=1), ABSENT)
    catalog.put(item("s", n=2), ABSENT)
    assert offsets.get("p", "s") == item("s", n=1)
    assert catalog.get("p", "s") == item("s", n=2)
    offsets.close()
    assert catalog.get("p", "s") == item("s", n=2)
    catalog.close()


def test_folder_and_file_are_made_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "c.db"
    SqliteItemTable(path, "offsets").put(item("s"), ABSENT)
    assert keys(path) == ["s"]


def test_every_connection_is_durable_at_each_commit(tmp_path: Path) -> None:
    """Rule 20. synchronous is a setting of the connection, so each way to one is looked at."""
    table = SqliteItemTable(tmp_path / "c.db", "offsets")
    table.put(item("s"), ABSENT)
    table.get("p", "s")
    own = table._own()
    assert own.writer is not None
    for connection in (own.writer, own.readers[0], table._open()):
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    table.close()


@pytest.mark.parametrize("name", ["", "Offsets", "a-b", "1a", "a;drop table x", "sqlite_master", "x" * 64])
def test_table_names_are_checked(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="item table"):
        SqliteItemTable(tmp_path / "c.db", name)


def test_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    SqliteItemTable(path, "offsets").close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {FILE_FORMAT + 1}")
    connection.close()
    for table in ("offsets", "catalog"):
        with pytest.raises(ConfigurationError, match=rf"c\.db has format {FILE_FORMAT + 1}.*newer skipprd"):
            SqliteItemTable(path, table)


def test_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    with pytest.raises(ConfigurationError, match="another program"):
        SqliteItemTable(path, "offsets")
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
    connection.close()


def test_file_that_is_no_database_is_corruption(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    path.write_bytes(b"no database " * 1000)
    with pytest.raises(DataCorruption, match=r"c\.db.*restore"):
        SqliteItemTable(path, "offsets")


def test_overwritten_pages_are_corruption(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    table = SqliteItemTable(path, "offsets")
    for i in range(200):
        table.put(item(f"{i:03}", x="y" * 200), ABSENT)
    table.close()
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xab" * (len(data) - 4096)
    path.write_bytes(data)
    table = SqliteItemTable(path, "offsets")
    with pytest.raises(DataCorruption, match=r"c\.db"):
        list(table.query("p"))
    with pytest.raises(DataCorruption, match=r"c\.db"):
        table.put(item("x"), ABSENT)
    table.close()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1.5}', '{"a": {"b64": "!"}}', '{"a": {"x": "y"}}', '{"a": [1]}', '{"a": null}'])
def test_row_that_holds_no_item_is_corruption_naming_the_row(tmp_path: Path, text: str) -> None:
    table = SqliteItemTable(tmp_path / "c.db", "offsets")
    connection = sqlite3.connect(tmp_path / "c.db")
    connection.execute("INSERT INTO offsets VALUES ('p', 'broken', ?)", (text,))
    connection.commit()
    connection.close()
    with pytest.raises(DataCorruption, match="'p' 'broken'"):
        table.get("p", "broken")
    table.close()


@pytest.mark.parametrize("place", ["folder", "under a file"])
def test_path_that_cannot_be_a_file_is_a_wrong_setting(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    path = tmp_path / "folder" if place == "folder" else tmp_path / "file" / "c.db"
    with pytest.raises(ConfigurationError, match=str(path)):
        SqliteItemTable(path, "offsets")


@pytest.mark.parametrize(
    ("code", "kind", "told"),
    [
        ("SQLITE_READONLY", ConfigurationError, "write"), ("SQLITE_READONLY_DIRECTORY", ConfigurationError, "write"),
        ("SQLITE_PERM", ConfigurationError, "write"), ("SQLITE_FULL", Unavailable, "full"), ("SQLITE_IOERR_READ", Unavailable, "disk"),
        ("SQLITE_BUSY_RECOVERY", Unavailable, "fuser"), ("SQLITE_CORRUPT", DataCorruption, "backup"), ("SQLITE_ERROR", Internal, ""),
        ("SQLITE_CANTOPEN", Unavailable, "folder"),
    ],
)
def test_errors_of_sqlite_become_ours_and_name_file_and_remedy(code: str, kind: type[SkipprError], told: str) -> None:
    error = sqlite3.OperationalError("what sqlite says")
    error.sqlite_errorname = code
    ours = _translate(error, "/srv/c.db")
    assert type(ours) is kind
    assert all(part in str(ours) for part in ("/srv/c.db", "what sqlite says", code, told))


def test_locked_file_is_waited_for_and_then_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    table = SqliteItemTable(path, "offsets", wait_s=0.1)
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match=r"c\.db.*another process"):
        table.put(item("s"), ABSENT)
    assert table.get("p", "s") is None  # readers do not wait
    patient = SqliteItemTable(path, "offsets", wait_s=30)
    release = threading.Timer(0.05, lambda: holder.execute("ROLLBACK"))
    release.start()
    patient.put(item("s"), ABSENT)
    release.join()
    assert table.get("p", "s") == item("s")
    for opened in (holder, table, patient):
        opened.close()


def test_full_database_refuses_the_write_and_goes_on_after(tmp_path: Path) -> None:
    table = SqliteItemTable(tmp_path / "c.db", "offsets")
    table.put(item("s"), ABSENT)
    writer = table._own().writer
    assert writer is not None
    (pages,) = writer.execute("PRAGMA page_count").fetchone()
    writer.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(Unavailable, match=r"c\.db.*disk is full"):
        table.put(item("big", x="y" * 100_000), ABSENT)
    assert table.get("p", "big") is None
    writer.execute("PRAGMA max_page_count = 1000000")
    table.put(item("big", x="y" * 100_000), ABSENT)
    table.close()


SHORT_DISK = """
import resource, signal, sys
from catalog.errors import OutcomeUnknown, Unavailable
from catalog.items.sqlite import SqliteItemTable
from catalog.items.table import ABSENT
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
table = SqliteItemTable(sys.argv[1], "offsets")
table.put({"PK": "p", "SK": "before"}, ABSENT)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
told = []
for sk, size in (("big", 390_000), ("small", 1)):
    try:
        table.put({"PK": "p", "SK": sk, "x": "y" * size}, ABSENT)
    except (OutcomeUnknown, Unavailable) as error:
        told.append(type(error).__name__)
        assert sys.argv[1] in str(error)
print(*told, table.get("p", "big") is None, table.get("p", "before") is not None)
"""


def test_write_error_at_commit_is_of_unknown_outcome_and_ends_writing(tmp_path: Path) -> None:
    """A failed commit may still be in the file at the next start; and no later fsync of that handle proves anything."""
    path = tmp_path / "c.db"
    done = subprocess.run([sys.executable, "-c", SHORT_DISK, str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["OutcomeUnknown", "Unavailable", "True", "True"], done.stderr
    assert keys(path) in (["before"], ["before", "big"])


def test_removed_and_replaced_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    table = SqliteItemTable(path, "offsets")
    table.put(item("s"), ABSENT)
    path.rename(tmp_path / "away.db")
    with pytest.raises(DataCorruption, match="removed or replaced"):
        table.put(item("t"), ABSENT)
    shutil.copy(tmp_path / "away.db", path)
    with pytest.raises(DataCorruption, match="removed or replaced"):
        table.put(item("t"), ABSENT)
    with pytest.raises(DataCorruption, match="removed or replaced"):
        table._open()
    table.close()


def test_a_page_of_big_items_is_bounded_in_bytes(tmp_path: Path) -> None:
    table = SqliteItemTable(tmp_path / "c.db", "offsets")
    for i in range(6):
        table.put(item(str(i), x="y" * 390_000), ABSENT)
    assert len(table._read(lambda connection: table._page(connection, "p", "", False, None))) == 3
    table.close()


def test_use_after_close_is_our_mistake(tmp_path: Path) -> None:
    table = SqliteItemTable(tmp_path / "c.db", "offsets")
    table.close()
    with pytest.raises(Internal, match="closed"):
        table.get("p", "s")
    with pytest.raises(Internal, match="closed"):
        table.put(item("s"), ABSENT)


CRASH = """
import os, signal, sys
from catalog import failpoint
from catalog.items.sqlite import SqliteItemTable
from catalog.items.table import ABSENT, Put
table = SqliteItemTable(sys.argv[1], "offsets")
failpoint.install(lambda name: os.kill(os.getpid(), signal.SIGKILL) if name == sys.argv[2] else None)
table.transact([Put({"PK": "p", "SK": "a"}, ABSENT), Put({"PK": "p", "SK": "b"}, ABSENT)])
"""


@pytest.mark.parametrize(("name", "left"), [("items.sqlite.before_commit", []), ("items.sqlite.committed", ["a", "b"])])
def test_a_killed_process_leaves_all_of_a_transaction_or_nothing(tmp_path: Path, name: str, left: list[str]) -> None:
    path = tmp_path / "c.db"
    done = subprocess.run([sys.executable, "-c", CRASH, str(path), name], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert keys(path) == left


@pytest.mark.parametrize(("name", "there"), [("items.sqlite.before_commit", False), ("items.sqlite.committed", True)])
def test_an_error_inside_a_write_leaves_the_table_usable(tmp_path: Path, name: str, there: bool) -> None:
    table = SqliteItemTable(tmp_path / "c.db", "offsets")

    def fail(hit: str) -> None:
        if hit == name:
            raise KeyboardInterrupt

    failpoint.install(fail)
    try:
        with pytest.raises(KeyboardInterrupt):
            table.put(item("s"), ABSENT)
    finally:
        failpoint.install(None)
    assert (table.get("p", "s") is not None) == there
    table.put(item("s"), EXISTS if there else ABSENT)
    table.close()


@pytest.mark.parametrize(
    ("name", "kind", "there"), [("items.sqlite.before_commit", Unavailable, False), ("items.sqlite.committed", OutcomeUnknown, True)]
)
def test_a_disk_error_around_a_commit_is_one_of_ours(tmp_path: Path, name: str, kind: type[SkipprError], there: bool) -> None:
    table = SqliteItemTable(tmp_path / "c.db", "offsets")

    def fail(hit: str) -> None:
        if hit == name:
            raise OSError(5, "Input/output error")

    failpoint.install(fail)
    try:
        with pytest.raises(kind, match=r"c\.db.*Input/output error"):
            table.put(item("s"), ABSENT)
    finally:
        failpoint.install(None)
    assert (table.get("p", "s") is not None) == there
    table.close()


def test_a_forked_child_is_refused_what_its_parent_had_open(tmp_path: Path) -> None:
    """SQLite's record of its locks is wrong in the child, and an open transaction there would be undone under the parent's feet."""
    table = SqliteItemTable(tmp_path / "c.db", "offsets")
    table.put(item("s", n=0), ABSENT)
    held, release = threading.Event(), threading.Event()

    def hold_in_transaction(name: str) -> None:
        if name == "items.sqlite.before_commit":
            held.set()
            release.wait(30)

    failpoint.install(hold_in_transaction)
    writing = threading.Thread(target=lambda: table.update(Update("p", "s", Equals({"n": 0}), set={"n": 1})))
    writing.start()
    assert held.wait(30)
    child = os.fork()
    if child == 0:
        failpoint.install(None)
        os._exit(_uses_in_child(table, tmp_path))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    release.set()
    writing.join()
    failpoint.install(None)
    assert status == 0
    assert table.get("p", "s") == item("s", n=1)
    table.close()


def _uses_in_child(table: SqliteItemTable, folder: Path) -> int:
    """0 where the parent's file is refused in every way and another file works."""
    uses = [
        lambda: table.get("p", "s"), lambda: table.put(item("t"), ABSENT), lambda: list(table.query("p")),
        lambda: SqliteItemTable(folder / "c.db", "offsets"),
    ]
    for number, use in enumerate(uses, start=1):
        try:
            use()
        except Internal:
            continue
        except BaseException:  # noqa: BLE001  # the exit code tells the parent which use it was
            return 10 + number
        return number
    table.close()
    own = SqliteItemTable(folder / "child.db", "offsets")
    own.put(item("s"), ABSENT)
    return 0 if own.get("p", "s") == item("s") else 20


def test_processes_that_create_the_file_at_the_same_time_agree(tmp_path: Path) -> None:
    script = (
        "import sys; from catalog.items.sqlite import SqliteItemTable; from catalog.items.table import ABSENT\n"
        "for i in range(5): SqliteItemTable(f'{sys.argv[1]}/{i}.db', 'offsets').put({'PK': 'p', 'SK': sys.argv[2]}, ABSENT)"
    )
    started = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path), str(n)]) for n in range(4)]
    assert [process.wait(60) for process in started] == [0] * 4
    for i in range(5):
        assert keys(tmp_path / f"{i}.db") == ["0", "1", "2", "3"]


def test_a_file_created_in_the_middle_of_the_check_is_not_taken_for_a_foreign_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "c.db")
    check = sqlite._check_owner

    class Interrupted:
        """A connection between whose reads another process creates the file."""

        def __init__(self, connection: sqlite3.Connection) -> None:
            self.connection = connection

        def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:
            cursor = self.connection.execute(sql, *parameters)
            if sql == "PRAGMA user_version":
                monkeypatch.setattr(sqlite, "_check_owner", check)
                SqliteItemTable(path, "offsets").close()
            return cursor

    monkeypatch.setattr(sqlite, "_check_owner", lambda connection, where: check(Interrupted(connection), where))  # type: ignore[arg-type]
    table = SqliteItemTable(path, "offsets")
    table.put(item("s"), ABSENT)
    assert table.get("p", "s") == item("s")
    table.close()


def test_idle_connections_stay_few_and_threads_share_them(tmp_path: Path) -> None:
    table = SqliteItemTable(tmp_path / "c.db", "offsets")
    table.put(item("s"), ABSENT)
    threads = [threading.Thread(target=lambda: [table.get("p", "s") for _ in range(50)]) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= len(table._own().readers) <= 8
    table.close()
    assert table._connections.readers == []


def test_condition_failure_inside_a_transaction_leaves_no_transaction_open(tmp_path: Path) -> None:
    table = SqliteItemTable(tmp_path / "c.db", "offsets")
    with pytest.raises(ConditionFailed):
        table.transact([Put(item("a"), ABSENT), Put(item("b"), EXISTS)])  # type: ignore[arg-type]
    writer = table._own().writer
    assert writer is not None
    assert not writer.in_transaction
    table.close()


def test_outcome_unknown_is_no_subclass_of_what_callers_retry(tmp_path: Path) -> None:
    assert not issubclass(OutcomeUnknown, Unavailable)
