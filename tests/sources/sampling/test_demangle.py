"""Names as people wrote them; what does not demangle stays."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.sources.sampling import demangle
from exhume.sources.sampling.demangle import LONGEST, function_name, shorten

pytest.importorskip("pycxxfilt", reason="the record extra is not installed")


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"main", "main"),
        (b"", ""),
        (b"memcpy@@GLIBC_2.14", "memcpy"),
        (b"malloc@plt", "malloc@plt"),
        (b"_ZN2at6native3addERKNS_6TensorE", "at::native::add(at::Tensor const&)"),
        (b"_ZNSt6vectorIiSaIiEE9push_backEOi@@GLIBCXX_3.4", "std::vector<int, std::allocator<int>>::push_back(int&&)"),
        (b"_Z3foov.cold", "foo() (.cold)"),
        (b"_Znot_mangled", "_Znot_mangled"),
        (b"_Read_my_lips", "_Read_my_lips"),
        (b"_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE", "core::fmt::Formatter::write_str"),
        (
            b"_ZN60_$LT$alloc..string..String$u20$as$u20$core..fmt..Display$GT$3fmt17h8ac3ba7ee71d3d4fE",
            "<alloc::string::String as core::fmt::Display>::fmt",
        ),
        (b"_ZN3std2rt10lang_start17h0123456789abcdefE.llvm.1234567890", "std::rt::lang_start"),
        (b"_RNvCs1234_7mycrate3foo", "mycrate::foo"),
        (b"\x1b[31m\xff", "\x1b[31m\\xff"),
    ],
)
def test_names(raw: bytes, told: str) -> None:
    assert function_name(raw) == told


def test_a_long_name_keeps_both_ends() -> None:
    told = function_name(b"begin_" + b"x" * 4000 + b"_end")
    assert len(told) == LONGEST
    assert told.startswith("begin_")
    assert told.endswith("_end")
    assert "…" in told


def test_without_the_library_names_stay_mangled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demangle, "_itanium", None)
    assert function_name(b"_Z3foov") == "_Z3foov"


def _digits(number: int, base: int) -> str:
    """As seq-id of Itanium (base 36) and base-62-number of Rust have it: "" is 0, "0" is 1."""
    digits, found = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", ""
    number -= 1
    while number >= 0:
        found, number = digits[number % base] + found, number // base or -1
    return found.upper() if base == 36 else found


def _templates(levels: int) -> str:
    return "_Z1f1AIiiE" + "".join(f"S_IS{_digits(n + 1, 36)}_S{_digits(n + 1, 36)}_E" for n in range(levels))


def _functions(levels: int) -> str:
    return "_Z1fFviiE" + "".join(f"FvS{_digits(n, 36)}_S{_digits(n, 36)}_E" for n in range(levels))


def _behind_a_literal(levels: int) -> str:
    return _templates(levels).replace("_Z1f1AIiiE", "_Z1f1AILj4095EiE")


def _as_legacy_rust(levels: int) -> str:
    """An identifier at the end that looks like the hash of Rust's first mangling."""
    return "_ZN1BI" + _templates(levels).removeprefix("_Z1f") + "E17h0123456789abcdefE"


def _rust(levels: int) -> str:
    name, at = "INvC1a1fTuuE", 8
    for _ in range(levels):
        at, name = len(name), f"{name}TB{_digits(at, 62)}_B{_digits(at, 62)}_E"
    return f"_R{name}E"


@pytest.mark.parametrize("make", [_templates, _functions, _behind_a_literal, _as_legacy_rust, _rust])
def test_a_name_that_doubles_with_each_part_is_not_demangled(
    make: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty levels would be gigabytes. Few of them are a name as any other."""

    def never(name: str) -> str:
        raise AssertionError(f"demangled: {name}")

    assert function_name(make(3).encode()) != make(3)
    monkeypatch.setattr(demangle, "_itanium", never)
    monkeypatch.setattr(demangle, "_rust", never)
    for levels in (25, 30, 33):
        assert function_name(make(levels).encode()) == shorten(make(levels))


@given(st.one_of(st.binary(max_size=80), st.from_regex(rb"_(Z|R|ZN)[0-9A-Za-z_$.]{0,60}(17h[0-9a-f]{16}E)?", fullmatch=True)))
def test_any_name_is_told_and_never_too_long(raw: bytes) -> None:
    assert len(function_name(raw)) <= LONGEST
