"""LIKE patterns of metadata requests."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flight.protocol.patterns import LikePattern


@pytest.mark.parametrize(("pattern", "text", "expected"), [
    (None, "anything", True), ("%", "", True), ("", "", True), ("", "a", False), ("a_c", "abc", True), ("a_c", "ac", False),
    ("a\\_c", "abc", False), ("a\\_c", "a_c", True), ("%b%", "abc", True), ("%b", "abc", False), ("\\%", "%", True),
    ("\\%", "x", False), ("a\\\\b", "a\\b", True), ("a\\", "a\\", True), ("A", "a", False), ("_", "\n", True), ("a%z", "a\nz", True),
])
def test_matches(pattern: str | None, text: str, expected: bool) -> None:
    assert LikePattern(pattern).matches(text) is expected


@given(st.text("ab%_\\", max_size=8), st.text("ab%_", max_size=8))
def test_same_as_the_regular_expression(pattern: str, text: str) -> None:
    expression, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\" and at + 1 < len(pattern):
            at += 1
            expression += re.escape(pattern[at])
        else:
            expression += {"%": ".*", "_": "."}.get(char, re.escape(char))
        at += 1
    assert LikePattern(pattern).matches(text) is bool(re.fullmatch(expression, text, re.DOTALL))


def test_a_hostile_pattern_ends() -> None:
    assert not LikePattern("%a" * 200 + "b").matches("a" * 400)


def test_a_pattern_without_wildcards_names_one_text() -> None:
    assert LikePattern("a\\_b").literal == "a_b"
    assert LikePattern("a_b").literal is None
    assert LikePattern(None).literal is None
