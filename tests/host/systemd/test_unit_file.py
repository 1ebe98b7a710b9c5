"""The parser by itself: what it does with garbage, and the order in which drop-ins speak."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.host.systemd import names
from exhume.host.systemd.specifiers import expand
from exhume.host.systemd.unit_file import LONGEST_LINE, Text, merge, parse, split
from exhume.host.systemd.units import read_units
from tests.examples import examples
from tests.host.systemd.written import tree

PIECES = st.sampled_from(
    (
        *(b"[Unit]", b"[Service]", b"[", b"]", b"\n", b"\r", b"\0", b"\\", b"\\\n", b"#", b";", b"=", b" ", b"\t", b"%i"),
        *(b"Description=", b"Wants=", b"a.service", b"\xef\xbb\xbf", b"\xff", b'"', b"'", b"ExecStart=/bin/x --password=y"),
        b"Restart=always",
    )
)
GARBAGE = st.one_of(st.binary(max_size=300), st.lists(PIECES, max_size=40).map(b"".join))
KEYS = st.sampled_from(["Description", "Wants", "Environment"])
VALUES = st.text(st.characters(categories=("L", "N"), include_characters=" /:."), max_size=20).map(str.strip)


@given(GARBAGE)
def test_garbage_gives_assignments_that_could_have_been_written(raw: bytes) -> None:
    for section, key, value in parse(raw).assignments:
        assert section
        assert key
        assert key == key.strip(" \t\r\n")
        assert "=" not in key
        assert value == value.strip(" \t\r\n")
        assert not {"\n", "\0"} & set(section + key + value)
        (section + key + value).encode("utf-8")


@given(GARBAGE)
def test_a_comment_before_changes_nothing(raw: bytes) -> None:
    """It is not ASCII, which takes the way for unusual files; a mark at the beginning counts there only."""
    if not raw.startswith(b"\xef"):
        assert parse("# é\n".encode() + raw) == parse(raw)


@given(st.lists(st.tuples(KEYS, VALUES), max_size=10))
def test_what_was_written_is_read_back(pairs: list[tuple[str, str]]) -> None:
    text = "[Unit]\n" + "".join(f"{key} = {value}\n" for key, value in pairs)
    assert parse(text.encode()) == Text(tuple(("Unit", key, value) for key, value in pairs))


@given(st.lists(GARBAGE, max_size=4))
def test_a_merge_says_what_its_parts_say_one_after_the_other(raws: list[bytes]) -> None:
    texts = [parse(raw) for raw in raws]
    merged = merge(texts)
    assert merged.assignments == tuple(one for text in texts for one in text.assignments)
    for section, keys in merged.values.items():
        for key, values in keys.items():
            assert values == tuple(value for s, k, value in merged.assignments if (s, k) == (section, key))
            assert merged.last(section, key) == values[-1]
            assert "" not in merged.lines(section, key)


@given(st.text(max_size=60))
def test_words_have_no_space_unless_it_was_quoted_or_escaped(value: str) -> None:
    for escapes in (True, False):
        words = split(value, escapes)
        if not set(value) & set("\"'\\"):
            assert list(words) == value.replace("\t", " ").replace("\r", " ").replace("\n", " ").split(" ") or all(words)
            assert "".join(words) == "".join(c for c in value if c not in " \t\r\n")


def test_quotes_and_escapes_in_commands() -> None:
    assert split(r"""/bin/sh -c 'a "b" c' "d e" f\x20g \u00e9 \\ "" open"quote d""") == (
        *("/bin/sh", "-c", 'a "b" c', "d e", "f g", "é", "\\", "", "openquote d"),
    )


def test_a_line_that_is_too_long_ends_the_file_and_a_long_one_does_not() -> None:
    fits = b"[Unit]\nDescription=" + b"x" * (LONGEST_LINE - 100)
    assert len(parse(fits).assignments[0][2]) == LONGEST_LINE - 100
    assert parse(fits + b"x" * 200 + b"\nWants=a.service\n") == Text((), "a line is longer than 1 MiB")
    assert parse(b"[Unit]\nDescription=" + b"\\\nx" * LONGEST_LINE).broken == "a line is longer than 1 MiB"


@given(st.text(max_size=40), st.sampled_from(["a.service", "a@b.service", "a@.service", "a-b-c.mount", "-.slice"]))
def test_specifiers_leave_text_without_them_alone(text: str, name: str) -> None:
    if "%" not in text:
        assert expand(text, name) == text
    assert expand(text.replace("%", "%%"), name) == text


def test_specifiers_of_an_instance() -> None:
    assert expand("%n %N %p %i %I %j %f %% %H", r"a-b@c-d\x2de.service") == (
        r"a-b@c-d\x2de.service a-b@c-d\x2de a-b c-d\x2de c/d-e b /c/d-e % %H"
    )


@given(st.text(max_size=40), st.sampled_from(names.TYPES))
def test_names_are_plain_ascii_or_invalid(stem: str, kind: str) -> None:
    name = f"{stem}.{kind}"
    if names.valid(name):
        assert name.isascii()
        assert "/" not in name
        assert names.form(name) in ("plain", "template", "instance")
        assert not (template := names.template(name)) or names.with_instance(template, names.instance(name)) == name


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1), min_size=1, max_size=4))
def test_a_path_comes_back_from_its_unit_name(parts: list[str]) -> None:
    wanted = [part for part in parts if part != "."]
    assert names.to_path(names.of_path("/".join(parts), "mount")) == "/" + "/".join(wanted)


@settings(max_examples=examples(60))
@given(
    files=st.dictionaries(
        st.sampled_from(
            (
                *("a.service", "a@.service", "a@b.service", "b.timer", "c.socket", "d.target", "default.target", "f.path"),
                *("a.service.d/x.conf", "service.d/y.conf", "-.slice", "e.mount"),
            )
        ),
        GARBAGE,
        max_size=6,
    ),
    links=st.dictionaries(
        st.sampled_from(["x.service", "y.service", "z@.service", "a@c.service", "default.target.wants/a@q.service", "w.timer"]),
        st.sampled_from(
            ["y.service", "x.service", "a.service", "a@.service", "/dev/null", "../..", ".", "/etc/systemd/system", "é"]
        ),
        max_size=5,
    ),
)
def test_trees_of_garbage_are_read(files: dict[str, bytes], links: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory(prefix="exhume-test-") as place:
        units = "/etc/systemd/system/"
        files = {name: raw for name, raw in files.items() if name not in links}
        with tree(
            Path(place), {units + name: raw for name, raw in files.items()}, {units + k: v for k, v in links.items()}
        ) as root:
            read = read_units(root)
            services = read.services()
            assert len({service.name for service in services}) == len(services)
            for service in services:
                assert "password=y" not in " ".join(service.command)
                assert read.canonical(service.name) == service.name
                assert service.state
            for name, kinds in read.graph.forward.items():
                for kind, others in kinds.items():
                    assert all(name in read.graph.onto(other, kind) for other in others)
