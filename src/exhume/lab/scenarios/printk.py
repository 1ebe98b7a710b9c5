"""A flood of kernel messages, which can only be made in the node's own log."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path

from exhume.errors import Refused
from exhume.lab import measure, network
from exhume.lab.scenario import Number, Promise, Scenario, Settings, Truth
from exhume.lab.workshop import Lab

_STORY = """\
A device flaps, and the kernel says so each time: thousands of messages a second, of the kernel itself. Each takes a core until
it is in the log, and with a serial console at 115,200 baud until it is out there, character after character; that has kept
network polls waiting on real nodes. Older lines are pushed out of the log, those that would have told about something else
among them. (The device is a virtual one in a network namespace of its own that goes in and out of promiscuous mode. A console
that would print that is told not to until the run is over. Lines that a program writes to /dev/kmsg are marked as such; they
are no kernel's messages.)"""

A_SECOND = 2000
MOST = 40_000
"""Messages of a run. A longer one goes on in silence."""
SETTING = Path("/proc/sys/kernel/printk")
_INFO = 6  # KERN_INFO, of __dev_set_promiscuity in net/core/dev.c
_LOG = "/dev/kmsg"


def device_of(run: str) -> str:
    """Its name is in every line, so it tells whose they are; 15 letters at most."""
    return f"exhume-{run.rpartition('-')[2]}"


def quiet_console(setting: str) -> str | None:
    """The setting kernel.printk with which the console prints none of ours; None if it does not anyway."""
    level, *others = setting.split()
    return " ".join([str(_INFO), *others]) if int(level) > _INFO else None


class Lines:
    """How many lines of a device there are in the kernel's log from now on, and from when to when."""

    def __init__(self, device: str, copy: Path) -> None:
        """They are copied for whoever reads the log of this run only."""
        self.count = 0
        self._copy = copy
        self._first_us = self._last_us = 0
        self._mark = f";{device}: ".encode()
        self._old_mark = f";device {device} ".encode()  # before 6.5 it was said with other words
        self._log = os.open(_LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(self._log, 0, os.SEEK_END)
        self._sampled = measure.Sampled(0.1, self._read)

    def _read(self, now: float) -> None:
        ours = [record for record in self._new() if self._mark in record or self._old_mark in record]
        if not ours:
            return
        self._first_us = self._first_us or _microseconds(ours[0])
        self._last_us = _microseconds(ours[-1])
        self.count += len(ours)
        with open(self._copy, "ab") as file:
            file.writelines(ours)

    def _new(self) -> Iterator[bytes]:
        while True:
            try:
                yield os.read(self._log, 16 << 10)
            except BlockingIOError:
                return
            except OSError:  # overwritten before it could be read
                continue

    @property
    def per_second(self) -> float:
        return self.count * 1e6 / max(1, self._last_us - self._first_us) if self.count > 1 else 0.0

    def close(self) -> None:
        self._sampled.close()
        os.close(self._log)


def _microseconds(record: bytes) -> int:
    """Of a record as /dev/kmsg has it: level, sequence, microseconds, flag; text."""
    return int(record.split(b",", 3)[2])


class Flood:
    def __init__(self, lab: Lab) -> None:
        self._device, self._run = device_of(lab.id), lab.name
        quieter = quiet_console(SETTING.read_text())
        if quieter is not None:
            lab.set(SETTING, quieter)
        self._announce(f"floods the kernel's log for a while, by its device {self._device}")
        place = f"{lab.name}-flaps"
        for command in (
            ("ip", "netns", "add", place),
            ("ip", "-n", place, "link", "add", self._device, "type", "veth", "peer", "name", "other"),
        ):
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode:
                raise Refused(f"{' '.join(command)} failed: {done.stderr.strip()}")
        self.lines = Lines(self._device, lab.kmsg)
        flapper = lab.work("in-network", f"/run/netns/{place}", "promiscuous", self._device, A_SECOND, MOST)
        measure.Heard(flapper).wait("messages", 10)

    def _announce(self, what: str) -> None:
        with suppress(OSError):  # kernel.printk_devkmsg=off: then the device's name has to do
            Path(_LOG).write_text(f"<6>exhume-lab {self._run}: {what}\n")

    def measured(self) -> dict[str, Number]:
        time.sleep(0.2)  # what was said a moment ago is read a moment later
        return {"messages": self.lines.count, "messages_per_s": round(self.lines.per_second)}

    def close(self) -> None:
        self.lines.close()
        self._announce("is over")


def _make(lab: Lab, settings: Settings) -> AbstractContextManager[Flood]:
    return closing(Flood(lab))


def _promises(settings: Settings) -> tuple[Promise, ...]:
    return (
        Promise("messages_per_s", ">=", 1000, "/dev/kmsg, records of the kernel that name our device"),
        Promise("messages", ">=", round(min(MOST * 0.9, settings.seconds * 1000)), "/dev/kmsg"),
        Promise("messages", "<=", MOST, "/dev/kmsg"),
    )


def _missing() -> str:
    if not os.access(_LOG, os.R_OK):
        return f"it takes {_LOG}"
    return network.missing()


SCENARIOS = [
    Scenario(
        name="printk-flood",
        summary="hundreds of kernel messages a second (in the node's own log, by lines that say whose they are)",
        story=_STORY,
        truth=Truth(cause="printk-flood", culprits=("exhume-{tag}", "lab-flapper"), innocent=("kubelet", "journald")),
        promises=_promises,
        make=_make,
        missing=_missing,
    )
]
