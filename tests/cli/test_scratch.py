"""What is made of a file while somebody looks at it goes with the process, however that is asked to end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HELD = "import sys; from exhume.cli.scratch import scratch; print(scratch('exhume-test-'), flush=True); sys.stdin.read()"


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 128 + signal.SIGTERM), (None, 0)])
def test_a_directory_goes_when_we_do(tmp_path: Path, how: signal.Signals | None, code: int) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", HELD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        place = process.stdout.readline().decode().strip()
        (Path(place) / "segment").write_bytes(b"x")
        if how is None:
            process.stdin.close()
        else:
            process.send_signal(how)
        assert process.wait(20) == code
    assert place.startswith(str(tmp_path))
    assert not os.path.exists(place)
