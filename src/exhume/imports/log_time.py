"""Dates as logs write them, as nanoseconds of the wall clock, with what they leave out: the zone, and often the year.

What had to be supplied is remembered, for the notes. A date that is none, or that no machine has seen, is None.
"""

import re
import time
from datetime import UTC, datetime, timedelta

from exhume.host.quantities import DAY, SECOND

# Within these a moment and a difference of two fit into 64 bits of nanoseconds.
_FIRST_YEAR, _LAST_YEAR = 1970, 2199
_LEAP = 8
"""29 February may be missing for so many years (1896 to 1904, 2096 to 2104)."""
MONTHS = {name: at for at, name in enumerate(b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}
_OFFSET = re.compile(rb"([+-])(\d\d):?(\d\d)")
_SOME_ZONES = 4
_UTC = (b"Z", b"z", b"UTC", b"GMT")


class Calendar:
    def __init__(self, latest_ns: int) -> None:
        """`latest_ns`: when the file was changed; nothing in it happened much later. 0 stands for now."""
        self._latest_ns = latest_ns or time.time_ns()
        self.without_zone = False
        self.without_year = False
        self._strange_zones: dict[bytes, None] = {}

    def dated(
        self, year: int, month: int, day: int, clock: bytes, fraction: bytes | None = None, zone: bytes | None = None
    ) -> int | None:
        """`clock` is 12:04:31 or 12:04; without a zone, or with one whose name is not known here, it is local time."""
        whole = _seconds(clock)
        if whole is None or not _FIRST_YEAR <= year <= _LAST_YEAR:
            return None
        try:
            date = datetime(year, month, day)
            if zone in _UTC:
                seconds = _utc(date) + whole
            elif zone is not None and (offset := _OFFSET.fullmatch(zone)):
                ahead = int(offset[2]) * 3600 + int(offset[3]) * 60
                seconds = _utc(date) + whole + (ahead if offset[1] == b"-" else -ahead)
            else:
                seconds = self._local(date + timedelta(seconds=whole), zone)
        except (ValueError, OverflowError, OSError):  # no such day, or none that the C library knows
            return None
        found = seconds * SECOND + fraction_ns(fraction)
        return found if found >= 0 else None

    def _local(self, moment: datetime, zone: bytes | None) -> int:
        """Of two moments that share a name when clocks are put back the one in that zone; the earlier (fold is 0) without."""
        if zone is None:
            self.without_zone = True
            return int(moment.timestamp())
        for fold in (0, 1):
            found = moment.replace(fold=fold)
            if found.astimezone().tzname() == zone.decode():
                return int(found.timestamp())
        if len(self._strange_zones) < _SOME_ZONES:
            self._strange_zones[zone] = None
        return int(moment.timestamp())

    def again(self, wall: int) -> int:
        """The later of two moments that share a name here, where this is the earlier and no zone was told; else itself."""
        if not self.without_zone:
            return wall
        try:
            second = wall // SECOND
            later = int(datetime.fromtimestamp(second).replace(fold=1).timestamp())
        except (ValueError, OverflowError, OSError):
            return wall
        return wall + max(0, later - second) * SECOND

    def undated(self, month: int, day: int, clock: bytes, fraction: bytes | None = None) -> int | None:
        """Without a year: the last one in which it is not in the future. A zone may be wrong by most of a day."""
        self.without_year = True
        this = datetime.fromtimestamp(min(self._latest_ns // SECOND, 7_000_000_000), UTC).year + 1
        for year in range(this, this - _LEAP - 2, -1):
            found = self.dated(year, month, day, clock, fraction)
            if found is not None and found <= self._latest_ns + DAY:
                return found
        return None

    def notes(self) -> list[str]:
        found = []
        here = time.strftime("%Z %z").strip()
        if self.without_zone:
            found.append(f"its times of day have no zone: taken as local time here ({here})")
        if self._strange_zones:
            names = ", ".join(zone.decode() for zone in self._strange_zones)
            found.append(f"its times of day are of a zone that is not known here, {names}: taken as local time ({here})")
        if self.without_year:
            found.append("its dates have no year: the last one that does not put them behind the time of the file was taken")
        return found


def fraction_ns(digits: bytes | None) -> int:
    return int(digits[:9].ljust(9, b"0")) if digits else 0


def _seconds(clock: bytes) -> int | None:
    """Of the day; a leap second is the 60th."""
    hours, minutes, seconds = (int(part) for part in (*clock.split(b":"), b"0")[:3])
    return hours * 3600 + minutes * 60 + seconds if hours < 24 and minutes < 60 and seconds <= 60 else None


def _utc(date: datetime) -> int:
    return int(date.replace(tzinfo=UTC).timestamp())
