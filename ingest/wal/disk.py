"""The log's folder on a disk, and its control file.

    DATA_DIR/{tenant}/{workspace}/{pipeline}/
        LOCK                              held by the writer for life (rule 18)
        log.json                          the control file
        segments/{index, 20 digits}.seg   committed entries
        segments/....seg.partial          an entry being written: no promise was made on it, the next start removes it
        segments/....seg.broken           an entry set aside at a start: torn, and never published

The control file holds the wal id (rule 11), the epoch (raised at each open), and the base: the last reclaimed entry with its hash,
and per table the highest reclaimed index that fed it (rule 13). It is written beside itself, fsynced and moved into place; so it is
always the old one or the new one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from catalog import failpoint
from catalog.errors import ConfigurationError, DataCorruption
from catalog.keys import PipelineKey
from catalog.lake import Identifier
from ingest.wal.fields import Fields, canonical_json
from ingest.wal.filesystem import FileSystem, disk_errors
from ingest.wal.header import GENESIS_HASH

__all__ = ["CONTROL_FORMAT", "Base", "Control", "LogFolder", "read_control", "write_control"]

CONTROL_FORMAT: Final = 1
_SEGMENT_NAME: Final = re.compile(r"([0-9]{20})\.seg")


@dataclass(frozen=True, slots=True)
class Base:
    """The last reclaimed entry; index 0 where none is."""

    epoch: int = 0
    index: int = 0
    entry_hash: str = GENESIS_HASH


@dataclass(frozen=True, slots=True)
class Control:
    """What the control file says. `fed` maps each table to the highest reclaimed index that fed it."""

    pipeline: PipelineKey
    wal_id: str
    epoch: int
    base: Base = Base()
    fed: Mapping[Identifier, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogFolder:
    """Names inside one pipeline's folder."""

    path: Path

    @staticmethod
    def of(data_dir: Path, key: PipelineKey) -> LogFolder:
        """The folder of a pipeline under DATA_DIR. No part of it is an identity (I10): a folder may be moved as a whole."""
        return LogFolder(data_dir / key.tenant / key.workspace / key.pipeline)

    @property
    def control(self) -> Path:
        return self.path / "log.json"

    @property
    def segments(self) -> Path:
        return self.path / "segments"

    def segment(self, index: int) -> Path:
        """A committed entry's file."""
        return self.segments / f"{index:020d}.seg"

    def partial(self, index: int) -> Path:
        """An entry being written."""
        return self.segments / f"{index:020d}.seg.partial"

    def broken(self, index: int) -> Path:
        """An entry set aside."""
        return self.segments / f"{index:020d}.seg.broken"

    @staticmethod
    def index_of(name: str) -> int | None:
        """Index of a committed entry's file name, None for any other name."""
        match = _SEGMENT_NAME.fullmatch(name)
        return int(match[1]) if match else None


def read_control(filesystem: FileSystem, folder: LogFolder) -> Control | None:
    """The control file, None where there is none.

    Raises DataCorruption where it is damaged, ConfigurationError where a newer skipprd wrote it, Unavailable.
    """
    try:
        with disk_errors("reading", folder.control, passing=FileNotFoundError):
            data = filesystem.read(folder.control)
    except FileNotFoundError:
        return None
    return decode_control(data, str(folder.control))


def write_control(filesystem: FileSystem, folder: LogFolder, control: Control) -> None:
    """Replace the control file; durable on return. After an error either the old or the new one stands there. Raises Unavailable."""
    partial = folder.control.with_name("log.json.partial")
    with disk_errors("writing", folder.control):
        with suppress(FileNotFoundError):  # left by a crash or an error: never written to a second time
            filesystem.unlink(partial)
        file = filesystem.create(partial)
        try:
            file.write((encode_control(control),))
            failpoint.hit("wal.control.written")
            file.sync()
        finally:
            file.close()
        failpoint.hit("wal.control.fsynced")
        filesystem.replace(partial, folder.control)
        failpoint.hit("wal.control.renamed")
        filesystem.sync_folder(folder.path)
        failpoint.hit("wal.control.committed")


def encode_control(control: Control) -> bytes:
    """Canonical JSON with a checksum over itself."""
    plain: dict[str, object] = {
        "format": CONTROL_FORMAT, "pipeline": str(control.pipeline), "wal_id": control.wal_id, "epoch": control.epoch,
        "base": {"epoch": control.base.epoch, "index": control.base.index, "hash": control.base.entry_hash},
        "fed": [{"identifier": list(identifier), "index": index} for identifier, index in sorted(control.fed.items())],
    }
    return canonical_json(plain | {"sha256": hashlib.sha256(canonical_json(plain)).hexdigest()}) + b"\n"


def decode_control(data: bytes, where: str) -> Control:
    """Inverse of `encode_control`."""
    try:
        plain = json.loads(data)
        fields = Fields(plain, "the control file")
        found, digest = fields.number("format"), plain.pop("sha256")
        if digest != hashlib.sha256(canonical_json(plain)).hexdigest():
            raise ValueError("its checksum does not match")
        if found > CONTROL_FORMAT:
            raise ConfigurationError(
                f"{where} has format {found}; this skipprd reads formats up to {CONTROL_FORMAT}: run the newer skipprd that wrote it"
            )
        control = _control(fields)
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(where, str(error)) from error
    if encode_control(control) != data:
        raise _damaged(where, "it is not in canonical form")
    return control


def _control(fields: Fields) -> Control:
    base = fields.object("base")
    return Control(
        PipelineKey.parse(fields.text("pipeline")), fields.text("wal_id"), fields.number("epoch"),
        Base(base.number("epoch"), base.number("index"), base.digest("hash")),
        {f.texts("identifier"): f.number("index") for f in fields.objects("fed")},
    )


def _damaged(where: str, what: str) -> DataCorruption:
    return DataCorruption(
        f"the control file {where} is damaged: {what}. Restore it from a backup of the disk. Where there is none, move the pipeline's "
        "folder aside and run once with RESET_OFFSETS to read the source again"
    )
