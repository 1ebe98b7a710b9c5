"""Hostile names become safe to show."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.text import decode, from_path, printable


@given(st.binary(max_size=5000), st.integers(8, 300))
def test_any_bytes_become_printable_text_of_bounded_length(raw: bytes, limit: int) -> None:
    shown = printable(decode(raw), limit)
    assert shown.isprintable()
    assert len(shown) <= limit


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\r\tc", "a\\x0ab\\x0d\\x09c"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("\x9b2J", "\\x9b2J"),
        ("plain-name.service", "plain-name.service"),
        ("ünïcode 火", "ünïcode 火"),
    ],
)
def test_control_and_bidirectional_characters_are_shown_as_escapes(hostile: str, shown: str) -> None:
    assert printable(hostile) == shown


def test_a_long_name_keeps_its_beginning_and_its_end() -> None:
    shown = printable("/kubepods/" + "x" * 4000 + "/end-of-name", 60)
    assert shown.startswith("/kubepods/")
    assert shown.endswith("/end-of-name")
    assert "…" in shown


def test_bytes_that_are_not_utf8_stay_visible() -> None:
    assert decode(b"caf\xe9") == "caf\\xe9"
    assert from_path(b"caf\xe9".decode("utf-8", "surrogateescape")) == "caf\\xe9"
