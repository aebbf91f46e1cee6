"""Files of a local warehouse that are durable before a table pointer names them (rule 20, docs/protocol.md).

A rename or a new file is only certain after the folder that holds it was fsynced too, and so on up to a folder that was there
before. `make_durable` does that for files that are already written; `DurableFileIO` does it for everything a pyiceberg writer
closes, so that `Table.append` through `SkipprCatalog` is as safe as our own commit path.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import BinaryIO

from pyiceberg.io import FileIO, OutputStream, load_file_io
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

__all__ = ["DurableFileIO", "file_io", "local_path", "make_durable", "make_folder", "write_new"]


def local_path(location: str) -> str | None:
    """The path of a local location (`/path` or `file:///path`), None for an object store."""
    if location.startswith("file://"):
        return location.removeprefix("file://")
    if location.startswith("file:"):
        return location.removeprefix("file:")
    return None if "://" in location else os.path.abspath(location)


def make_durable(locations: Iterable[str], root: str) -> None:
    """Fsync the local files and every folder between them and `root`. Locations elsewhere are durable once written.

    Raises OSError; what was not fsynced then must not be trusted again, not even after a later success on the same file.
    """
    folders: set[str] = set()
    top = local_path(root)
    for location in locations:
        path = local_path(location)
        if path is None:
            continue
        _fsync(path)
        _collect_folders(os.path.dirname(path), top, folders)
    for folder in sorted(folders, key=len, reverse=True):
        _fsync(folder)


def write_new(location: str, data: bytes, io: FileIO) -> None:
    """Write a file that must not exist yet. Not durable until `make_durable`, where the location is local."""
    path = local_path(location)
    if path is None:
        with io.new_output(location).create(overwrite=False) as stream:
            stream.write(data)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "xb") as file:
        file.write(data)


def file_io(properties: Properties, location: str) -> FileIO:
    """The FileIO for a location: durable for local files, pyiceberg's choice for everything else."""
    if local_path(location) is not None:
        return DurableFileIO(properties)
    return load_file_io(properties, location)


def make_folder(path: str) -> None:
    """Create a folder and its parents, durably. Raises OSError."""
    top = _first_missing(path)
    os.makedirs(path, exist_ok=True)
    folders: set[str] = set()
    _collect_folders(path, top, folders)
    for folder in sorted(folders, key=len, reverse=True):
        _fsync(folder)


def _fsync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _collect_folders(folder: str, top: str | None, into: set[str]) -> None:
    """Add the folder and those above it, up to `top`; where it does not lie below `top`, only the folder itself."""
    below_top = top is not None and (folder == top or folder.startswith(top.rstrip("/") + "/"))
    while folder not in into:
        into.add(folder)
        if not below_top or folder == top:
            return
        folder = os.path.dirname(folder)


class DurableFileIO(PyArrowFileIO):
    """Reads like pyiceberg's Arrow FileIO; an output file and its folders are durable when its stream is closed."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)

    def new_output(self, location: str) -> PyArrowFile:
        path = local_path(location)
        return super().new_output(location) if path is None else _DurableFile(location, path, self.fs_by_scheme("file", ""))


class _DurableFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        """Raises FileExistsError where the file stands and `overwrite` is False."""
        path = local_path(self.location) or self.location
        folder = os.path.dirname(path)
        top = _first_missing(folder)
        os.makedirs(folder, exist_ok=True)
        return _DurableStream(open(path, "wb" if overwrite else "xb"), folder, top)


def _first_missing(folder: str) -> str:
    """The deepest existing folder on the way to `folder`: the one whose entries change when the rest is made."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


class _DurableStream:
    """A write stream whose close returns only when file and folders are on disk."""

    def __init__(self, file: BinaryIO, folder: str, top: str) -> None:
        self._file = file
        self._folder = folder
        self._top = top

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, b: bytes) -> int:
        return self._file.write(b)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        if self._file.closed:
            return
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        finally:
            self._file.close()
        folders: set[str] = set()
        _collect_folders(self._folder, self._top, folders)
        for folder in sorted(folders, key=len, reverse=True):
            _fsync(folder)

    def __enter__(self) -> _DurableStream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
