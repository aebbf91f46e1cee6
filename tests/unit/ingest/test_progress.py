"""A run whose numbers do not add up does not end as if they did."""

from __future__ import annotations

import re

import pytest

from catalog.errors import Internal
from ingest.progress import i8_adds_up


@pytest.mark.parametrize(("read", "landed", "dead"), [(10, 9, 0), (10, 10, 1), (0, 1, 0)])
def test_i8_names_the_difference(read: int, landed: int, dead: int) -> None:
    with pytest.raises(Internal, match="I8 broken.*" + re.escape(f"({read - landed - dead:+d})")):
        i8_adds_up(read, landed, dead)


def test_i8_holds_where_every_record_is_somewhere() -> None:
    i8_adds_up(10, 7, 3)
