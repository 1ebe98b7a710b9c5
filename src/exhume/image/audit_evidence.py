"""What is known of a thing besides its own file, and what a live node shows of its use, as sentences. For the judgement."""

from collections.abc import Iterator
from dataclasses import dataclass

from exhume.host.programs import services
from exhume.host.quantities import DAY_S, SECOND, counted, duration
from exhume.host.service import Service
from exhume.image.policy import Listed
from exhume.sources.unit_life import Life
from exhume.sources.unit_sockets_model import INIT, Sockets
from exhume.text import printable

LOOPING_RESTARTS = 3
"""As many restarts that systemd has counted make a loop, if the last was a moment ago."""
LOOPING_S = 120.0
IDLE_CPU_S_A_DAY = 1.0
"""What a daemon that waits for a connection which never comes may use: a timer here and there."""

_MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class Known:
    """What else is known of it, besides its own file; None and "" where nothing is."""

    agent: str = ""
    """The catalogue's name for it."""
    protected: bool = False
    harm: str = ""
    """What it is known to do, if the catalogue knows any harm and it can come to that here."""
    critical: bool = False
    """Whether that harm is known to take nodes down."""
    needed_here: str = ""
    """Why the catalogue takes it for needed here."""
    not_needed_here: str = ""
    """Why the catalogue's conditions for needing it are excluded here; only what is certain."""
    weak: frozenset[str] = frozenset()
    """Of those that need it, the ones that do not outweigh a harm: they do not start, or are parts of the same agent."""
    runs: tuple[str, ...] = ()
    """What else would not run without it: lines of crontabs, containers, pods."""
    listed: Listed | None = None
    life: Life | None = None
    sockets: Sockets | None = None
    loop: str = ""
    """A crash loop that a recording shows, as a sentence."""
    unseen: bool = False
    """On a live node, whether nobody could look who uses it: then nothing is proven idle."""


def looping(life: Life) -> bool:
    """Whether systemd itself has it in a crash loop at this moment."""
    waits = "auto-restart" in life.sub
    if life.active == "failed" and not waits:
        return False  # systemd has given it up
    fresh = waits or 0 <= life.since_s < LOOPING_S
    return (
        life.restarts >= LOOPING_RESTARTS and fresh and (waits or life.result not in ("", "success") or life.exit_status != 0)
    )


def crash_loop(life: Life) -> str:
    how = f", the last time with {ending(life)}" if ending(life) else ""
    return f"it is in a crash loop now: systemd has restarted it {life.restarts:,} times{how}"


def ending(life: Life) -> str:
    """How its main process last ended; "" if it never did."""
    if life.exit_code == 1:  # CLD_EXITED
        return f"exit status {life.exit_status}"
    if life.exit_code in (2, 3):  # CLD_KILLED, CLD_DUMPED
        return f"signal {life.exit_status}" + (" and a core dump" if life.exit_code == 3 else "")
    return f"result {printable(life.result)}" if life.result not in ("", "success") else ""


def in_use(known: Known) -> str:
    """Who uses it at this moment, in a sentence; "" if nobody was seen."""
    if known.sockets is None:
        return ""
    for end in known.sockets.listening:
        peers = [name for name in end.peers if not _anybodys(name)]
        if peers:
            return f"{names(peers)} {'are' if len(peers) > 1 else 'is'} connected to {printable(end.address)}"
        if end.remotes:
            return f"{end.remotes:,} other machine{'s are' if end.remotes > 1 else ' is'} connected to {printable(end.address)}"
    if known.sockets.mounted_by:
        return f"{names(known.sockets.mounted_by)} {'have' if len(known.sockets.mounted_by) > 1 else 'has'} its socket mounted"
    return ""


def idleness(service: Service, known: Known) -> Iterator[str]:
    """What a live node shows of it not being used. No proof by itself."""
    life, sockets = known.life, known.sockets
    if sockets is not None and sockets.listening and not in_use(known):
        yield f"nobody was connected to the {counted(len(sockets.listening), 'socket')} that it listens on"
    if life is not None and life.active == "failed":
        yield f"it has failed{lasting(life)} and does not run"


def proven_idle(service: Service, known: Known) -> str:
    """Proof from a live node that nobody uses a thing of which nothing else is known; "" where there is none."""
    life, sockets = known.life, known.sockets
    if life is None or known.unseen or in_use(known) or not service.name.endswith(".service"):
        return ""
    if life.active == "failed" and life.since_s >= DAY_S and service.state in ("enabled", "enabled-runtime", "linked"):
        return f"it has been failed{lasting(life)}, {ending(life) or 'not running'}, and nothing has missed it"
    if life.active != "active" or life.since_s < DAY_S or life.cpu_s < 0 or sockets is None or not sockets.listening:
        return ""
    if sockets.outgoing or any(not _anybodys(name) for name in sockets.talks_to):
        return ""  # it works for somebody elsewhere
    never = all(end.protocol == "unix" and end.made_s >= 0 and end.touched_s < 0 for end in sockets.listening)
    if not never or life.cpu_s > IDLE_CPU_S_A_DAY * life.since_s / DAY_S:
        return ""
    count = len(sockets.listening)
    whose = "its one socket" if count == 1 else f"any of its {count} sockets"
    return (
        f"nobody has ever connected to {whose}, and in {duration(life.since_s * SECOND)} it has used "
        f"{duration(life.cpu_s * SECOND)} of CPU time"
    )


def names(names: tuple[str, ...] | list[str]) -> str:
    shown = [printable(name, 80) for name in names[:_MOST_NAMED]]
    if len(names) > _MOST_NAMED:
        return f"{', '.join(shown)} and {len(names) - _MOST_NAMED:,} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def lasting(life: Life) -> str:
    return f" for {duration(life.since_s * SECOND)}" if life.since_s >= 0 else ""


def _anybodys(unit: str) -> bool:
    """Whom every service is connected to: its log and the bus. That proves no use."""
    return unit == INIT or unit in services("everyone-connects")
