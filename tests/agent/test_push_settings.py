"""Settings of pushing that cannot work are refused in a sentence when they are read, not when a profile is lost."""

from pathlib import Path

import pytest

from exhume.agent.settings import read
from exhume.errors import UsageError


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[agent.push]\nurl = "pyroscope:4040"', "must begin with http:// or https://"),
        ('[agent.push]\nurl = "http://"', "agent.push.url must be an address"),
        ('[agent.push]\nurl = "http://a:port"', "agent.push.url must be an address"),
        ('[agent.push]\nurl = "http://a/b c"', "agent.push.url must be an address"),
        ('[agent.push]\nurl = "http://a\\r\\nX: y"', "agent.push.url must be an address"),
        ('[agent.push]\nurl = "https://me:secret@a"', "agent.push.token_file is for the receiver's token"),
        ('[agent.push]\nform = "json"', "agent.push.form must be one of pyroscope, pprof, otlp"),
        ('[agent.push]\nlabels = ["a"]', "which is not name=value"),
        ('[agent.push]\nlabels = ["a b=c"]', "which is not name=value"),
        ('[agent.push]\nlabels = ["a="]', "which is not name=value"),
        ('[agent]\nuser_stacks = "some"', "agent.user_stacks must be one of none, host, all"),
        ("[agent]\nuser_stacks = true", "agent.user_stacks must be text"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "exhume.toml").write_text(text)
    with pytest.raises(UsageError) as refused:
        read(str(tmp_path / "exhume.toml"))
    assert says in str(refused.value)
    assert "secret" not in str(refused.value)


def test_what_can_is_taken(tmp_path: Path) -> None:
    (tmp_path / "exhume.toml").write_text(
        '[agent]\nuser_stacks = "host"\n[agent.push]\nurl = "https://[::1]:4040/x?y=z"\nlabels = ["zone=b, c"]\n'
        'namespaces = ["training", "*"]\n'
    )
    found, _ = read(str(tmp_path / "exhume.toml"))
    assert (found.user_stacks, found.push.namespaces, found.push.labels) == ("host", ("training", "*"), ("zone=b, c",))
