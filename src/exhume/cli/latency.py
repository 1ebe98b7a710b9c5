"""exhume latency: how late the kernel is, and who makes it late."""

import argparse
import sys
from typing import TYPE_CHECKING, TextIO

from exhume.cli.arguments import duration_ns
from exhume.cli.check import CODES
from exhume.errors import UsageError
from exhume.host.quantities import SECOND

if TYPE_CHECKING:
    from exhume.cli.terminal import Progress
    from exhume.diagnosis.findings.thresholds import Thresholds
    from exhume.diagnosis.latency import LatencyReport
    from exhume.recorder.latency import Options
    from exhume.recorder.latency_told import Told

DESCRIPTION = """\
Measures how late the kernel serves its network devices, softirqs and threads, and names who holds the core meanwhile.

A driver resets its device after seconds of starvation; the poll that did not run shows from the first late millisecond.
Stalls are found at all times, by looking 40 times a second at what waits, which costs the packets nothing; each is told
with its device, core, length and offender, and with -v or --watch while it lasts. Histograms come from probes that are on
for half a second of each ten. Nothing on the node is changed, and all of it is gone when exhume is, however it ends."""
EPILOG = """\
examples:
  sudo exhume latency                         ten seconds
  sudo exhume latency --device eth0 --for 1m  only what concerns a device
  sudo exhume latency --watch                 until Ctrl-C; stalls are told while they last
  sudo exhume latency --threads 'kubelet|containerd'
  exhume latency /data/rec                    what a recording has of it
  sudo exhume latency --json | jq '.stalls[] | {at, us, device, offender}'

exit code: 0 no stall that matters, 1 warning, 2 critical, 3 nothing could be watched. The napi_stall_* thresholds of the
configuration decide, as for the finding napi-starved: by default a stall of 200 ms is a warning, one of a second critical"""

SHORTEST_NS, LONGEST_NS = 200_000_000, 86_400 * 10**9


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("recording", nargs="?", metavar="RECORDING", help="what exhume record wrote; this node, live, without")
    parser.add_argument("--for", dest="window_ns", type=duration_ns, default="10s", metavar="TIME", help="how long (10s)")
    parser.add_argument("--device", default="", metavar="NAME", help="only this network device and the cores that poll it")
    parser.add_argument("--threshold", type=duration_ns, metavar="TIME", help="a stall from here on (napi_stall_ms: 50ms)")
    parser.add_argument("--threads", default="", metavar="REGEX", help="watch threads of these names, too")
    parser.add_argument("--full", action="store_true", help="measure every event, not those of half a second in ten")
    parser.add_argument("--watch", action="store_true", help="until Ctrl-C; tell stalls while they last")
    parser.add_argument("--json", action="store_true", help="print as JSON (schema exhume.latency/1)")
    parser.add_argument("--host", default="/", metavar="DIR", help="the node whose / is mounted at DIR")
    parser.add_argument("--config", metavar="FILE", help="settings (default: EXHUME_CONFIG or /etc/exhume/exhume.toml)")
    parser.add_argument("-v", "--verbose", action="store_true", help="every core, every stall, every source")


def run(args: argparse.Namespace) -> int:
    import os
    import re

    from exhume.config import load, section
    from exhume.diagnosis.findings.thresholds import Thresholds

    thresholds = section(load(args.config), "thresholds", Thresholds)
    if args.threshold is None:
        args.threshold = thresholds.napi_stall_ms * 1_000_000
    if not SHORTEST_NS <= args.window_ns <= LONGEST_NS:
        raise UsageError("--for must be between 200ms and 24h")
    if not 5_000_000 <= args.threshold <= 60 * 10**9:
        raise UsageError("--threshold must be between 5ms and 1m")
    if not os.path.isdir(args.host):
        raise UsageError(f"--host {args.host!r} is not a directory; mount the host's / there")
    try:
        re.compile(args.threads)
    except re.error as error:
        raise UsageError(f"--threads {args.threads!r} is not a regular expression: {error}") from None
    if args.recording:
        return _recorded(args, thresholds)
    if args.threshold > args.window_ns:
        raise UsageError("--threshold is longer than --for: nothing could be found")
    return _watch(args, thresholds)


def _watch(args: argparse.Namespace, thresholds: "Thresholds") -> int:
    from dataclasses import replace

    from exhume.cli.stopping import Stopping
    from exhume.cli.terminal import Progress
    from exhume.diagnosis.latency import latency_report
    from exhume.host.root import Root
    from exhume.recorder.memory import Memory
    from exhume.recorder.profiles import LATENCY
    from exhume.recorder.recorder import Options as RecorderOptions
    from exhume.recorder.recorder import Recorder

    progress = Progress("watching")
    told = _Teller(args, progress) if args.watch or args.verbose else None
    worst = 0
    counted = 0
    profile = replace(LATENCY, latency=_options(args))
    with Stopping() as stop, Recorder(Root(args.host), profile, RecorderOptions(on_stall=told)) as recorder:
        while True:
            try:
                window = Memory(recorder.node)
                recorder.run(window, args.window_ns, stop, progress=progress, last=not args.watch)
            finally:
                progress.clear()
            report = latency_report(window.recording, thresholds, args.device, args.threshold / 1e6, _present(args.host))
            _show(args, report)
            worst = max(worst, CODES[report.health])
            counted += sum(stall.over for stall in report.stalls)
            if not args.watch or stop():
                if args.watch and not args.json:
                    sys.stderr.write(f"exhume: {counted:,} stalls in all\n")
                return worst


def _recorded(args: argparse.Namespace, thresholds: "Thresholds") -> int:
    from exhume.diagnosis.latency import latency_report
    from exhume.recording.folder import Folder

    recording = Folder(args.recording).load(tables=("latency", "events", "counters", "sources", "anchors"))
    report = latency_report(recording, thresholds, args.device, args.threshold / 1e6)
    _show(args, report)
    return CODES[report.health]


def _present(host: str) -> set[str]:
    """The network devices of our own namespace."""
    import os

    try:
        return set(os.listdir(os.path.join(host, "sys/class/net")))
    except OSError:
        return set()


def _options(args: argparse.Namespace) -> "Options":
    from exhume.recorder.latency import Options

    return Options(
        threshold_ns=args.threshold,
        look_ns=min(25_000_000, args.threshold // 2),
        names=args.threads,
        window_ns=10 * SECOND if args.full else 500_000_000,
    )


class _Teller:
    """Tells of stalls as they come, on stderr, so that what is printed at the end can be piped."""

    def __init__(self, args: argparse.Namespace, progress: "Progress") -> None:
        self._device = args.device
        self._progress = progress

    def __call__(self, told: "Told") -> None:
        from datetime import datetime

        from exhume.recorder.latency_told import message
        from exhume.text import printable

        if self._device and told.stall.device != self._device:
            return
        self._progress.clear()
        now = datetime.now().strftime("%H:%M:%S.%f")[:-3]
        sys.stderr.write(f"{now}  {printable(message(told), 300)}\n")
        sys.stderr.flush()


def _show(args: argparse.Namespace, report: "LatencyReport") -> None:
    if args.json:
        import json

        from exhume.diagnosis.latency import as_json

        print(json.dumps(as_json(report), indent=None if args.watch else 1), flush=True)
        return
    from exhume.cli.latency_text import render
    from exhume.cli.terminal import Style, width

    sys.stdout.write(render(report, Style(sys.stdout), width(sys.stdout), args.verbose, not _draws(sys.stdout)))
    sys.stdout.flush()


def _draws(stream: TextIO) -> bool:
    """Whether blocks can be written at all."""
    try:
        "▁·".encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
