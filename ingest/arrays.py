"""Between numpy and Arrow by buffers.

`pa.array`, `pa.scalar` and `np.asarray` of an Arrow array import pandas where it is installed (a quarter of a second and 40 MB, to look
whether they were given something of it); sharing buffers does not, and copies nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["bits", "bools", "ints", "longs"]


def longs(values: npt.NDArray[Any]) -> pa.Array:
    """int64 values as an Arrow array."""
    given = np.ascontiguousarray(values, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(given), [None, pa.py_buffer(given)])


def ints(values: npt.NDArray[Any]) -> pa.Array:
    """int32 values as an Arrow array (list offsets)."""
    given = np.ascontiguousarray(values, np.int32)
    return pa.Array.from_buffers(pa.int32(), len(given), [None, pa.py_buffer(given)])


def bits(values: npt.NDArray[np.bool_]) -> pa.Array:
    """A mask as an Arrow array."""
    packed = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(packed)])


def bools(array: pa.Array) -> npt.NDArray[np.bool_]:
    """An Arrow array of booleans as a mask; NULL is False."""
    size = len(array)
    validity, data = array.buffers()
    made = _unpacked(data, array.offset, size)
    return made & _unpacked(validity, array.offset, size) if validity is not None and array.null_count else made


def _unpacked(data: pa.Buffer, offset: int, size: int) -> npt.NDArray[np.bool_]:
    raw = np.frombuffer(data, np.uint8)[offset // 8 : (offset + size + 7) // 8]
    return np.unpackbits(raw, bitorder="little")[offset % 8 : offset % 8 + size].astype(np.bool_)
