"""Which files a path, folder or glob names: deterministic, recursive, safe against loops of symbolic links.

* A folder means every regular file below it; names that start with `.` are left out (editors' and copy tools' scratch files).
* A glob knows `*`, `?`, `[...]` within one level and `**` across levels; its root is the part before the first such character. A
  leading `.` is matched only by a pattern that writes it.
* A symbolic link to a file or folder outside the root is followed. One that leads to a file that is listed under its own name too is
  left out: the same rows would count twice. Hard links are files of their own.
* Folders that skippr writes itself (`own_folders`, told by what they are, not by their names) are not entered.
* Files come in the order of their names relative to the root, compared as bytes.
"""

from __future__ import annotations

import contextlib
import errno
import glob as globbing
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from catalog.control import invariants
from catalog.errors import ConfigurationError

__all__ = ["Found", "Listing", "base_name", "partition_name", "relative_name"]

_INCARNATION: Final = re.compile(r"~\d+\Z")


@dataclass(frozen=True, slots=True)
class Found:
    """A file of the source: its path, its name relative to the root, and what `stat` said. `error`: it cannot be looked at."""

    path: str
    name: str
    size_bytes: int = 0
    mtime_ns: int = 0
    inode: int = 0
    error: OSError | None = None


def relative_name(path: str, root: str) -> str:
    """The partition's base name: posix, relative to the root, valid Unicode, reversible.

    A name that is not UTF-8, or ends in `~raw`, is percent-encoded and gets `~raw`; a name that ends like an incarnation (`~3`) gets
    `~0`. So no two files and incarnations share a name.
    """
    name = os.path.relpath(path, root).replace(os.sep, "/")
    try:
        name.encode()
    except UnicodeEncodeError:
        return f"{_quoted(name)}~raw"
    if name.endswith("~raw"):
        return f"{_quoted(name)}~raw"
    return f"{name}~0" if _INCARNATION.search(name) else name


def partition_name(base: str, incarnation: int) -> str:
    """Name of the n-th incarnation of a file (0: the first)."""
    return base if incarnation == 0 else f"{base.removesuffix('~0')}~{incarnation}"


def base_name(partition: str) -> str:
    """The base name a partition's name was made from: inverse of `partition_name`."""
    found = _INCARNATION.search(partition)
    if found is None:
        return partition
    name = partition[:found.start()]
    return f"{name}~0" if _INCARNATION.search(name) else name


def _quoted(name: str) -> str:
    return quote(os.fsencode(name), safe="/")


class Listing:
    """The files that `path` names, listed anew each time. Not thread safe."""

    def __init__(self, path: str, *, recursive: bool, origin: str = "File.path", own_folders: Sequence[str] = ()) -> None:
        if not path:
            raise ConfigurationError(f"{origin} is empty: give a file, a folder or a glob")
        self._path = os.path.abspath(os.path.expanduser(path))
        self._origin = origin
        self._recursive = recursive
        self._own_folders = own_folders
        self._pattern: re.Pattern[str] | None = None
        self._depth_max: int | None = None if recursive else 1
        if globbing.has_magic(self._path) and not os.path.lexists(self._path):
            self.root = _static_root(self._path)
            pattern = os.path.relpath(self._path, self.root)
            self._pattern = re.compile(_translate(pattern), re.DOTALL)
            self._hidden = any(part.startswith(".") for part in pattern.split("/"))
            self._depth_max = None if "**" in pattern.split("/") else pattern.count("/") + 1
        else:
            self._hidden = False
            self.root = self._path if os.path.isdir(self._path) else os.path.dirname(self._path)

    def check(self) -> None:
        """Refuse a path that is missing or unreadable. Raises ConfigurationError naming it and the remedy."""
        target = self.root if self._pattern else self._path
        try:
            status = os.stat(target)
            if stat.S_ISDIR(status.st_mode):
                os.scandir(target).close()
                if (status.st_dev, status.st_ino) in self._own():
                    raise ConfigurationError(
                        f"{self._origin} {self._path!r} is a folder that skippr writes itself (DATA_DIR or the warehouse): keep what is to "
                        "be read in another one, or in a folder of its own inside"
                    )
            elif not stat.S_ISREG(status.st_mode):
                raise ConfigurationError(f"{self._origin} {target!r} is neither a file nor a folder: use the Stdin source for a pipe")
        except FileNotFoundError:
            kind = "the folder of the glob" if self._pattern else "it"
            raise ConfigurationError(
                f"{self._origin} {self._path!r}: {kind} ({target!r}) does not exist: create it or correct the path"
            ) from None
        except OSError as error:
            raise ConfigurationError(
                f"{self._origin} {self._path!r} cannot be read ({error.strerror}): give this user the right to read it, or correct the path"
            ) from error

    def files(self) -> list[Found]:
        """Every file now there, in order. What cannot be looked at is in the list with its error."""
        if self._pattern is None and not os.path.isdir(self._path):
            found = [_found(self._path, self.root)]
            return [f for f in found if f is not None]
        direct: list[Found] = []
        linked: list[Found] = []
        for file, through_link in self._walk(self.root, 1, self._own(), False):
            (linked if through_link else direct).append(file)
        listed = {file.inode for file in direct}
        for file in sorted(linked, key=_order):
            if file.error is not None or file.inode not in listed:
                listed.add(file.inode)
                direct.append(file)
        return sorted(direct, key=_order)

    def _own(self) -> frozenset[tuple[int, int]]:
        found = set()
        for folder in self._own_folders:
            with contextlib.suppress(OSError):  # not made yet
                status = os.stat(folder)
                found.add((status.st_dev, status.st_ino))
        return frozenset(found)

    def _walk(self, folder: str, depth: int, above: frozenset[tuple[int, int]], through_link: bool) -> Iterator[tuple[Found, bool]]:
        """Files at and below `folder`; `above` holds those on the way down, so that a loop of links ends, and skippr's own."""
        try:
            status = os.stat(folder)
            identity = (status.st_dev, status.st_ino)
            if identity in above:
                return
            with os.scandir(folder) as entries:
                names = sorted(entries, key=lambda e: os.fsencode(e.name))
        except FileNotFoundError:
            return
        except OSError as error:
            yield Found(folder, relative_name(folder, self.root), error=error), through_link
            return
        for entry in names:
            if entry.name.startswith(".") and not self._hidden:
                continue
            link = through_link or entry.is_symlink()
            if _is_dir(entry):
                if self._depth_max is None or depth < self._depth_max:
                    yield from self._walk(entry.path, depth + 1, above | {identity}, link)
            elif self._matches(entry.path) and (file := _found(entry.path, self.root)) is not None:
                yield file, link

    def _matches(self, path: str) -> bool:
        return self._pattern is None or self._pattern.fullmatch(os.path.relpath(path, self.root)) is not None


def _found(path: str, root: str) -> Found | None:
    name = relative_name(path, root)
    invariants.i10_no_machine_path(name, root)
    try:
        status = os.stat(path)
    except OSError as error:
        gone = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # deleted meanwhile, or a link that leads nowhere
        return None if gone else Found(path, name, error=error)
    if not stat.S_ISREG(status.st_mode):
        return None
    return Found(path, name, status.st_size, status.st_mtime_ns, status.st_ino)


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _order(file: Found) -> bytes:
    return os.fsencode(file.path)


def _static_root(pattern: str) -> str:
    """The folders before the first part that holds a wildcard."""
    parts = pattern.split("/")
    kept = next(i for i, part in enumerate(parts) if globbing.has_magic(part))
    return "/".join(parts[:kept]) or "/"


def _translate(pattern: str) -> str:
    """A regular expression for a glob relative to its root."""
    out: list[str] = []
    parts = pattern.split("/")
    for i, part in enumerate(parts):
        last = i == len(parts) - 1
        if part == "**":
            out.append(r"(?!\.)[^/]+(?:/(?!\.)[^/]+)*" if last else r"(?:(?!\.)[^/]+/)*")
        else:
            out.append(_translate_part(part) + ("" if last else "/"))
    return "".join(out)


def _translate_part(part: str) -> str:
    out = "" if part.startswith(".") else r"(?!\.)"
    at = 0
    while at < len(part):
        char = part[at]
        closing = part.find("]", at + 2) if char == "[" else -1
        if char == "*":
            out += "[^/]*"
        elif char == "?":
            out += "[^/]"
        elif closing > 0:
            inside = part[at + 1:closing]
            negated = inside.startswith(("!", "^"))
            inside = inside[1:] if negated else inside
            out += f"(?!/)[{'^' if negated else ''}{inside.replace(chr(92), chr(92) * 2).replace('[', chr(92) + '[')}]"
            at = closing
        else:
            out += re.escape(char)
        at += 1
    return out
