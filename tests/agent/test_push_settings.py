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
        ('[agent.push]\nurl = "http://a"\ntoken_file = "/t"', "agent.push.token_file needs an https:// address"),
        ('[agent.push]\nurl = "http://127.0.0.1.a"\ntoken_file = "/t"', "agent.push.token_file needs an https:// address"),
        ('[agent.push]\nurl = "http://10.0.0.1:1"\ntoken_file = "/t"', "agent.push.token_file needs an https:// address"),
        ('[agent]\nlisten = "0.0.0.0:9464"\nauth_file = "/a"', "agent.auth_file on 0.0.0.0:9464 needs agent.tls_cert"),
        ('[agent]\nlisten = "[::]:9464"\nauth_file = "/a"', "agent.auth_file on [::]:9464 needs agent.tls_cert"),
        ('[agent]\nlisten = "node:9464"\nauth_file = "/a"', "agent.auth_file on node:9464 needs agent.tls_cert"),
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


@pytest.mark.parametrize(
    "text",
    [
        '[agent.push]\nurl = "https://a"\ntoken_file = "/t"',
        '[agent.push]\nurl = "http://a"',
        *(f'[agent.push]\nurl = "http://{host}:4040"\ntoken_file = "/t"' for host in ("localhost", "127.0.0.9", "[::1]")),
        '[agent.push]\nurl = "http://a"\ntoken_file = "/t"\ntoken_over_http = true',
        *(f'[agent]\nlisten = "{listen}"\nauth_file = "/a"' for listen in ("127.0.0.1:1", "[::1]:1", "localhost:1", ":1")),
        '[agent]\nlisten = "0.0.0.0:1"\nauth_file = "/a"\ntls_cert = "/c"\ntls_key = "/k"',
        '[agent]\nlisten = "0.0.0.0:1"\nauth_file = "/a"\nauth_over_http = true',
    ],
)
def test_a_secret_that_nobody_can_read_on_the_way_is_taken(tmp_path: Path, text: str) -> None:
    (tmp_path / "exhume.toml").write_text(text)
    read(str(tmp_path / "exhume.toml"))
