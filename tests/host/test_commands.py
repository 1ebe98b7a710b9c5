"""Command lines are shown without their secrets."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.host.commands import LONGEST, shown
from tests.examples import examples


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/bin/agent --token abc --verbose", "/bin/agent --token *** --verbose"),
        ("/bin/agent --api-key=abc123 -v", "/bin/agent --api-key=*** -v"),
        ("env DB_PASSWORD=hunter2 /bin/x", "env DB_PASSWORD=*** /bin/x"),
        ("curl -H 'Authorization: Bearer abcdefgh12345' x", "curl -H 'Authorization: Bearer ***' x"),
        ("pg postgres://joe:s3cret@db/x", "pg postgres://***@db/x"),
        ("x --secret-file /etc/key --password /etc/pw", "x --secret-file /etc/key --password /etc/pw"),
        ("x --password=/etc/pw", "x --password=/etc/pw"),
        ("aws AKIAABCDEFGHIJKLMNOP", "aws ***"),
        ("run   --fast\n\t--now", "run --fast --now"),
        ("x --token --other", "x --token --other"),
        ('x --license_key="abc def"', 'x --license_key="*** def"'),
    ],
)
def test_values_that_look_like_secrets_are_hidden_and_paths_stay(line: str, expected: str) -> None:
    assert shown(line) == expected


@settings(max_examples=examples(200))
@given(st.text(max_size=300), st.from_regex(r"[A-Za-z0-9]{6,20}", fullmatch=True))
def test_any_line_is_bounded_and_one_line_and_hides_a_password(noise: str, secret: str) -> None:
    line = shown(noise)
    assert len(line) <= LONGEST
    assert "\n" not in line
    assert f"password={secret}" not in shown(f"x --password={secret}")
    assert f"Z9{secret}" not in shown(f"x --password Z9{secret}")


def test_a_line_made_to_be_slow_is_not() -> None:
    """Each of these would take minutes if the time grew with the square or worse."""
    for unit in ("a.", "--pass", "x://", "a:", "bearer ", "=" * 5, "--password "):
        assert len(shown(unit * 200_000)) <= LONGEST
