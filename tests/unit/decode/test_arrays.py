"""Buffers between numpy and Arrow, slices included."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ingest.arrays import bits, bools, ints, longs


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 100])
def test_masks_go_there_and_back(size: int) -> None:
    mask = np.arange(size) % 3 == 0
    assert bits(mask).to_pylist() == mask.tolist()
    for start in range(min(size, 20)):
        assert bools(bits(mask).slice(start)).tolist() == mask[start:].tolist()
        assert bools(bits(mask).slice(start, 3)).tolist() == mask[start : start + 3].tolist()


def test_a_null_in_a_mask_is_false() -> None:
    array = pa.array([True, None, False, True, None])
    assert bools(array).tolist() == [True, False, False, True, False]
    assert bools(array.slice(3)).tolist() == [True, False]


def test_integers_are_shared() -> None:
    values = np.arange(5)
    assert longs(values).to_pylist() == [0, 1, 2, 3, 4]
    assert longs(values[::2]).to_pylist() == [0, 2, 4]
    assert ints(values).type == pa.int32()
