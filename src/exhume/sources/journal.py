"""What systemd wrote of its units into the journal: restarts, exits and failures, also from before we looked.

journalctl is asked, in a process of its own: journal files are mapped into memory, and one that is cut short or damaged must
not be our end. It looks up MESSAGE_IDs in the files' own index (12 ms when tried), and prints JSON.
"""

import os
import shutil
import subprocess
import time as clock

from exhume.errors import Unreadable
from exhume.host.quantities import SECOND, duration
from exhume.host.root import Root
from exhume.recording.recording import Recording
from exhume.recording.source_state import Limit, Reasons
from exhume.sources.journal_entry import unit_entry
from exhume.sources.journal_units import FIELDS, IDS
from exhume.text import decode, printable

DEADLINE_S = 1.5
MOST_ENTRIES = 2_000
BACK_S = 3_600
"""How far back the first reading goes: older restarts are history (`recent_s`)."""
_PLACES = ("run/log/journal", "var/log/journal")


class UnitJournal:
    name = "journal"
    every_ns = 0

    def __init__(self, root: Root) -> None:
        self._root = root
        self._cursor = ""

    def read(self, recording: Recording, time: int) -> Reasons:
        if not self._root.same_kernel():
            raise Unreadable("the journal's clock is the running kernel's, and this root is another's")
        boot = decode(self._root.read("proc/sys/kernel/random/boot_id", 64)).strip().replace("-", "")
        # The same moment on both clocks; they drift apart by less than a second a day.
        offset = time - clock.monotonic_ns()
        entries = [entry for line in self._asked().split(b"\n") if (entry := unit_entry(line)) is not None]
        for entry in entries:
            if entry.boot == boot and (moment := entry.time + offset) >= 0:
                recording["events"].add(moment, *entry.said)
        if entries:
            self._cursor = entries[-1].cursor
        all_of_them = len(entries) < MOST_ENTRIES
        return () if all_of_them else (Limit(f"only the last {MOST_ENTRIES:,} entries on units were taken"),)

    def _asked(self) -> bytes:
        """Matches of one field are any of them, those of different fields all (journalctl(1))."""
        program = shutil.which("journalctl")
        if program is None or not any(self._root.exists(place) for place in _PLACES):
            raise Unreadable("there is no journal here" if program else "journalctl is not there")
        since = f"--after-cursor={self._cursor}" if self._cursor else f"--since=@{int(clock.time()) - BACK_S}"
        where = [] if self._root.own else [f"--root={self._root.path}"]
        asked = [program, "--quiet", "--no-pager", "--output=json", f"--output-fields={','.join(FIELDS)}", since, *where]
        asked += [f"--lines={MOST_ENTRIES}", "_PID=1", *(f"MESSAGE_ID={one}" for one in IDS)]
        try:
            done = subprocess.run(
                asked,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=DEADLINE_S,
                check=False,
                env={"PATH": os.defpath, "LC_ALL": "C"},
            )
        except subprocess.TimeoutExpired:
            raise Unreadable(f"journalctl did not answer within {duration(DEADLINE_S * SECOND)}") from None
        except OSError as error:
            raise Unreadable(f"journalctl cannot be run: {os.strerror(error.errno or 0)}") from None
        if done.returncode:
            complaint = printable(decode(done.stderr).strip()) or f"it ended with {done.returncode}"
            raise Unreadable(f"journalctl could not read the journal: {complaint}")
        return done.stdout
