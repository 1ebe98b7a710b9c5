"""Drop-ins that break a service's loop without taking the service away. What a plan writes and what a template prints.

They are written as files and read by a reload, never by `systemctl edit`, which wants a terminal.
"""

import math

from exhume.host.quantities import timespan_s
from exhume.host.systemd.manager import Defaults
from exhume.host.systemd.refused import actions
from exhume.host.systemd.start_limit import ACCURACY_S, Limit, restart
from exhume.host.systemd.unit_file import Sections

BURST = 5
LASTS_S = 60.0
"""A start that fails within a minute counts as one that fails at once; one that lasts longer is at work."""
# Everything that a service runs, systemd.service(5): each is a list, and an empty line forgets it.
_RUNS = ("ExecCondition", "ExecStartPre", "ExecStart", "ExecStartPost", "ExecReload", "ExecStop", "ExecStopPost")
# What can make the start of /bin/true fail all the same (systemd.exec(5)): another root, a user, a file, a directory or a
# credential that is not there, a filter of system calls. An empty line forgets each.
_IN_THE_WAY = (
    *("RootDirectory", "RootImage", "EnvironmentFile", "WorkingDirectory", "PIDFile", "User", "Group", "SupplementaryGroups"),
    *("PAMName", "LoadCredential", "LoadCredentialEncrypted", "SetCredential", "SetCredentialEncrypted", "SystemCallFilter"),
    *("ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "ExecPaths", "NoExecPaths", "BindPaths", "BindReadOnlyPaths"),
    *("MountImages", "ExtensionImages", "TemporaryFileSystem", "NetworkNamespacePath", "AppArmorProfile", "SELinuxContext"),
    *("RuntimeDirectory", "StateDirectory", "CacheDirectory", "LogsDirectory", "ConfigurationDirectory"),
)
# No list: these are given the value that asks for nothing.
_PLAIN = ("DynamicUser=no", "StandardInput=null", "StandardOutput=journal", "StandardError=journal", "ExitType=main")


def no_restart(sections: Sections | None = None) -> bytes:
    """It fails once and stays down, where everybody sees it.

    An exit status of RestartForceExitStatus= starts it again whatever Restart= says (service_shall_restart() in
    src/core/service.c), so that list is emptied, too.
    """
    why = "It is not started again when it ends: see why it does, then remove this file."
    return _text(why, _harmless(sections), ["Restart=no", "RestartForceExitStatus="])


def start_limit(sections: Sections, defaults: Defaults) -> bytes:
    """It is started again, but not for ever: the limit is computed from its own delays, so that it does bite."""
    limit = biting(sections, defaults)
    why = f"After {limit.burst} starts that fail within a minute each it is given up; it was never before."
    unit = [f"StartLimitIntervalSec={limit.interval_s:.0f}", f"StartLimitBurst={limit.burst}", *_harmless(sections)]
    return _text(why, unit, [])


def biting(sections: Sections, defaults: Defaults) -> Limit:
    """The interval that as many starts fit into as are needed, each as late and as long as it may be."""
    told = restart(sections, defaults)
    delay_s = told.delay_s if told is not None else defaults.restart_s
    longest_s = max([delay_s, *(timespan_s(value) or 0.0 for value in sections.all("Service", "RestartMaxDelaySec"))])
    if math.isinf(longest_s):
        longest_s = delay_s if math.isfinite(delay_s) else 0.0
    interval_s = math.ceil(BURST * (longest_s + LASTS_S + ACCURACY_S) / 60.0 + 1e-9) * 60.0
    return Limit(longest_s, BURST, interval_s, start_s=LASTS_S)


def do_nothing(sections: Sections | None = None) -> bytes:
    """It is there for whoever needs it to have been started, and runs nothing.

    Type=oneshot, because a notify service that never notifies fails; RemainAfterExit=yes, so that it counts as running; no
    Restart=, which systemd refuses with Type=oneshot (service_verify() in src/core/service.c). An assertion that fails would
    fail the start; an empty one forgets them all.
    """
    service = ["Type=oneshot", "RemainAfterExit=yes", "Restart=no", "RestartForceExitStatus=", "WatchdogSec=0", *_PLAIN]
    service += [f"{key}=" for key in (*_IN_THE_WAY, *_RUNS)]
    service.append("ExecStart=/bin/true")
    why = "It is started and does nothing, so that what needs it is content. Remove this file to have it back."
    return _text(why, ["AssertPathExists=", *_harmless(sections)], service)


def _harmless(sections: Sections | None) -> list[str]:
    """A loop that ends must not take the machine down with it: now that it is given up, StartLimitAction=reboot would.

    What an earlier drop-in of ours took back is taken back again: the new one is written over it.
    """
    return [f"{key}=none" for key in (actions(sections, ever=True) if sections is not None else ())]


def _text(why: str, unit: list[str], service: list[str]) -> bytes:
    lines = [f"# {why}"]
    if unit:
        lines += ["[Unit]", *unit]
    if service:
        lines += ["[Service]", *service]
    return ("\n".join(lines) + "\n").encode()
