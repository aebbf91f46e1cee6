"""One writer per pipeline folder: who is kept out, and when the lock is free again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.control import lockfile
from catalog.control.lockfile import LOCK_NAME, PipelineLock, read_holder
from catalog.errors import ConfigurationError, Conflict, Fenced, exit_code

HOLDER = """
import sys, pathlib, subprocess
from catalog.control import lockfile
from catalog.control.lockfile import PipelineLock
lock = PipelineLock.acquire(pathlib.Path(sys.argv[1]))
if "child" in sys.argv:
    child = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, close_fds=False)
    print(child.pid, flush=True)
else:
    print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with _start(tmp_path) as process:
        yield process
        process.kill()


def _start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.told = process.stdout.readline().strip()  # type: ignore[attr-defined]
    return process


def _acquire_soon(folder: Path) -> PipelineLock:
    """The kernel frees the lock of a killed process within moments."""
    for _ in range(200):
        try:
            return PipelineLock.acquire(folder)
        except Conflict:
            time.sleep(0.02)
    return PipelineLock.acquire(folder)


def test_second_writer_in_another_process_is_told_who_holds_the_folder(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(Conflict) as refused:
        PipelineLock.acquire(tmp_path)
    assert exit_code(refused.value) == 5
    told = str(refused.value)
    assert f"process {holder.pid} on {os.uname().nodename}, since 20" in told
    assert str(tmp_path) in told
    assert "DATA_DIR" in told


def test_second_writer_in_the_same_process_is_refused(tmp_path: Path) -> None:
    with PipelineLock.acquire(tmp_path):
        with pytest.raises(Conflict, match=f"process {os.getpid()} "):
            PipelineLock.acquire(tmp_path)
    PipelineLock.acquire(tmp_path).close()


def test_a_killed_holder_frees_the_lock(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with _acquire_soon(tmp_path):
        info = read_holder(tmp_path)
        assert info is not None
        assert info.pid == os.getpid()


def test_an_executed_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    process = _start(tmp_path, "child")
    child = int(process.told)  # type: ignore[attr-defined]
    try:
        process.kill()
        process.communicate()
        os.kill(child, 0)  # it is alive
        _acquire_soon(tmp_path).close()
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    lock = PipelineLock.acquire(tmp_path)
    waits, lets_go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(lets_go)
        os.read(waits, 1)
        os._exit(0)
    os.close(waits)
    try:
        with pytest.raises(Conflict):  # the child's copy is gone, the parent's lock is not
            PipelineLock.acquire(tmp_path)
        lock.close()
        _acquire_soon(tmp_path).close()
    finally:
        os.close(lets_go)
        os.waitpid(child, 0)


def test_other_pipelines_do_not_share_the_lock(tmp_path: Path) -> None:
    with PipelineLock.acquire(tmp_path / "t" / "w" / "one"), PipelineLock.acquire(tmp_path / "t" / "w" / "two"):
        assert (tmp_path / "t" / "w" / "one" / LOCK_NAME).exists()


def test_readers_take_no_lock(tmp_path: Path) -> None:
    assert read_holder(tmp_path) is None
    with PipelineLock.acquire(tmp_path):
        info = read_holder(tmp_path)
        assert info is not None
        assert info.pid == os.getpid()
    assert read_holder(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}', "\xff\xfe"])
def test_a_holder_that_cannot_be_read_still_keeps_others_out(tmp_path: Path, content: str) -> None:
    with PipelineLock.acquire(tmp_path) as lock:
        lock.path.write_bytes(content.encode("latin-1"))
        assert read_holder(tmp_path) is None
        with pytest.raises(Conflict, match="not told its name"):
            PipelineLock.acquire(tmp_path)


def test_what_a_dead_holder_left_behind_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).write_text(json.dumps({"pid": 1, "host": "h" * 300, "started": "then"}))
    with PipelineLock.acquire(tmp_path):
        info = read_holder(tmp_path)
        assert info is not None
        assert info.pid == os.getpid()


def test_verify_notices_a_removed_or_replaced_lock_file(tmp_path: Path) -> None:
    with PipelineLock.acquire(tmp_path) as lock:
        lock.verify()
        lock.path.unlink()
        with pytest.raises(Fenced, match="removed or replaced"):
            lock.verify()
        with PipelineLock.acquire(tmp_path) as second:
            second.verify()
            with pytest.raises(Fenced):
                lock.verify()


def test_a_file_removed_between_open_and_lock_is_not_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, removed = lockfile._flock, []

    def remove_first(path: Path, descriptor: int) -> None:
        if not removed:
            path.unlink()
            removed.append(path)
        real(path, descriptor)

    monkeypatch.setattr(lockfile, "_flock", remove_first)
    with PipelineLock.acquire(tmp_path) as lock:
        lock.verify()
        with pytest.raises(Conflict):
            PipelineLock.acquire(tmp_path)


def test_verify_after_close_is_fenced_and_close_is_idempotent(tmp_path: Path) -> None:
    lock = PipelineLock.acquire(tmp_path)
    lock.close()
    lock.close()
    with pytest.raises(Fenced):
        lock.verify()


def test_a_folder_that_cannot_be_made_is_a_wrong_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="DATA_DIR"):
        PipelineLock.acquire(tmp_path / "file" / "pipeline")
    (tmp_path / LOCK_NAME).mkdir()
    with pytest.raises(ConfigurationError, match="DATA_DIR"):
        PipelineLock.acquire(tmp_path)
