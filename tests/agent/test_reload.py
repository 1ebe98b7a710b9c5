"""An agent that is told again and again to read its settings counts every reset that the kernel tells of, and each once."""

import os
import signal
import threading
from pathlib import Path

import pytest

from exhume.kernel.clock import Clock
from exhume.recording.folder import Folder
from tests.agent.agents import agent

pytestmark = [pytest.mark.ci, pytest.mark.skipif(os.geteuid() != 0, reason="an agent with everything on needs root")]

LINES = (b"ena 0000:20:03.0 eth0: Keep alive watchdog timeout.", b"ena 0000:20:03.0: Device reset completed successfully")
OF = {"device": "eth0", "reason": "keep-alive"}


class Resets(threading.Thread):
    """A device that is reset fifty times a second, as the kernel's log tells it."""

    def __init__(self, log: Path) -> None:
        super().__init__(daemon=True)
        self.count = 0
        self.end = threading.Event()
        self._log = log

    def run(self) -> None:
        with Clock() as clock, self._log.open("ab", buffering=0) as log:
            while not self.end.wait(0.02):
                now = clock.now() // 1000
                records = (b"6,%d,%d,-;%s\n" % (2 * self.count + at, now + at, line) for at, line in enumerate(LINES))
                log.write(b"".join(records))
                self.count += 1


def test_no_reset_is_lost_and_none_is_counted_twice_however_often_it_begins_anew(tmp_path: Path) -> None:
    log = tmp_path / "log/dev/kmsg"
    log.parent.mkdir(parents=True)
    log.touch()
    with agent(tmp_path / "r", "--log-root", str(tmp_path / "log")) as it:
        it.ready()
        resets = Resets(log)
        resets.start()
        for again in range(1, 6):
            it.process.send_signal(signal.SIGHUP)
            it.until(lambda again=again: it.text.count("the settings were read again") == again)  # type: ignore[misc]
            before = it.value("exhume_agent_batches_total") or 0.0
            it.until(lambda before=before: (it.value("exhume_agent_batches_total") or 0.0) > before + 1)  # type: ignore[misc]
        resets.end.set()
        resets.join()
        it.until(lambda: (it.value("exhume_nic_resets_total", **OF) or 0.0) >= resets.count)
        assert it.value("exhume_nic_resets_total", **OF) == resets.count
        assert it.end(signal.SIGTERM) == 0
    assert resets.count > 100
    events = Folder(str(tmp_path / "r")).load(tables=("events",))["events"]
    assert sum(kind == "nic-reset-done" for kind in events.texts("kind")) == resets.count
