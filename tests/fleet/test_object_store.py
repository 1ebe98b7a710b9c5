"""Recordings in an object store, read through a server on loopback that speaks as S3 does (moto), and what goes wrong there."""

import importlib
import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.cli.main import main
from exhume.errors import ExhumeError
from exhume.fleet import sources
from exhume.fleet.recordings_fetched import _without_secret
from exhume.fleet.recordings_fetched_errors import sentence
from tests.fleet.test_recordings import folder as folder

pytestmark = pytest.mark.ci
BUCKET = "fleet"


@dataclass(frozen=True, slots=True)
class Store:
    address: str

    def client(self, service: str, key: str = "root", secret: str = "root") -> Any:
        boto3 = importlib.import_module("boto3")
        named = {"aws_access_key_id": key, "aws_secret_access_key": secret, "region_name": "us-east-1"}
        return boto3.client(service, endpoint_url=self.address, **named)

    def ask_for_rights(self, after: str) -> None:
        """From so many requests on, only what IAM allows is allowed; "inf" for never."""
        asked = urllib.request.Request(f"{self.address}/moto-api/reset-auth", after.encode(), {"Content-Type": "text/plain"})
        urllib.request.urlopen(asked, timeout=300).close()


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    pytest.importorskip("moto", reason="moto is not installed: pip install -r requirements/dev.lock")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None
                assert time.monotonic() < end
                time.sleep(0.1)
        yield Store(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(120)


@pytest.fixture
def environment(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    for name, value in {
        "AWS_ENDPOINT_URL": store.address,
        "AWS_ACCESS_KEY_ID": "root",
        "AWS_SECRET_ACCESS_KEY": "root",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    return store


@pytest.fixture(scope="module")
def filled(store: Store, folder: Path) -> Path:
    client = store.client("s3")
    client.create_bucket(Bucket=BUCKET)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            client.upload_file(str(path), BUCKET, f"nodes/{path.relative_to(folder)}")
    return folder


def test_recordings_in_s3_are_judged_as_those_in_a_folder_are(environment: Store, filled: Path) -> None:
    near, far = sources.open(str(filled)), sources.open(f"s3://{BUCKET}/nodes")
    assert {node.name: (node.sick, node.zombies, node.leak_per_day, node.resets) for node in far.nodes} == {
        node.name: (node.sick, node.zombies, node.leak_per_day, node.resets) for node in near.nodes
    }
    assert len(far.nodes) == 2
    assert far.boots == near.boots
    assert any("without their stack samples" in said for said in far.troubles)


def test_the_command_reads_them(environment: Store, filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "status", f"s3://{BUCKET}/nodes", "--json"]) == 2
    assert [row["node"] for row in json.loads(capsys.readouterr().out)["ranked"]] == ["sick", "well"]


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("s3://no-such-bucket/nodes", "there is no bucket no-such-bucket"),
        (f"s3://{BUCKET}/nowhere", "there is nothing at that place"),
        (f"s3://{BUCKET}/nodes/z2/not-one", "there is nothing at that place"),
    ],
)
def test_what_is_not_there_is_said(environment: Store, filled: Path, uri: str, said: str) -> None:
    with pytest.raises(ExhumeError, match=said):
        sources.open(uri)


def test_too_few_rights_are_said(environment: Store, filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody whom the store knows and to whom nothing was given; and somebody whom it does not know."""
    iam = environment.client("iam")
    iam.create_user(UserName="somebody")
    made = iam.create_access_key(UserName="somebody")["AccessKey"]
    environment.ask_for_rights("0")
    try:
        for key, secret in ((made["AccessKeyId"], made["SecretAccessKey"]), ("AKIANOBODYKNOWSTHIS", "wrong")):
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
            with pytest.raises(ExhumeError, match="these credentials may not read it, or are not known") as told:
                sources.open(f"s3://{BUCKET}/nodes")
            assert secret not in str(told.value)
    finally:
        environment.ask_for_rights("inf")


def test_a_store_that_cannot_be_reached_is_said(environment: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(ExhumeError, match=r"s3://fleet/nodes cannot be listed: the server cannot be reached: "):
        sources.open("s3://fleet/nodes")


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://KEY:s3cret@fleet/nodes?region=x&secret_key=abc", "s3://fleet/nodes"),
        ("s3://fleet", "s3://fleet"),
        ("abfs://container@account.dfs/x", "abfs://container@account.dfs/x"),
    ],
)
def test_a_secret_in_an_address_is_not_shown(uri: str, shown: str) -> None:
    assert _without_secret(uri) == shown


@given(st.text(max_size=400) | st.from_regex(r"AWS Error [A-Z_]{0,20}( \(HTTP status 40[0-9]\))? during X operation: .*"))
def test_whatever_a_store_says_it_is_one_line(text: str) -> None:
    for error in (OSError(text), ValueError(text)):
        said = sentence(error, text)
        assert said.isprintable()
        assert len(said) < 600
