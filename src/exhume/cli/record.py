"""exhume record: the flight recorder."""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from exhume.cli.arguments import duration_ns, size_bytes
from exhume.errors import EXIT_CANNOT_JUDGE, EXIT_HEALTHY, ExhumeError, Refused, UsageError
from exhume.host.quantities import compact, duration, size
from exhume.python import python

if TYPE_CHECKING:
    from exhume.diagnosis.report import Report
    from exhume.recorder.recorder import Status
    from exhume.recorder.session import Session
    from exhume.recording.writer import Writer

DESCRIPTION = """\
Records the node: stack samples of every core, its CPU time ten times a second, memory cgroups, pressure, reclaim, network,
interrupts, kernel log, units and cgroups as they come and go, all on one clock, into a directory of one-minute segments.

It is made to be left on: it takes 1 to 2 % of one core, keeps to its budget of disk, loses at most two seconds when it is
killed, and can be read while it runs. Nothing on the node is changed. Command lines and environments are not recorded; the
directory is readable by root alone."""
EPILOG = """\
examples:
  sudo exhume record                                   to /var/lib/exhume/recording, until Ctrl-C
  sudo exhume record /data/rec --for 12h --budget 8GiB
  sudo exhume record --on core-saturated,nic-reset     keep 15 minutes, pin what surrounds an incident, say why it came
  sudo exhume record --on any --json                   whatever hurts the node; a line of JSON for each verdict
  sudo exhume record --detach                          as a transient systemd unit
  exhume info /data/rec; exhume heat /data/rec; exhume flame /data/rec --at 12:04:31 --for 300ms

exit code: 0 done, 2 failed or refused, 3 could not"""

DEFAULT = "/var/lib/exhume/recording"
SMALLEST_BUDGET = 16 << 20
_TRIGGER_KEEP_NS = 15 * 60 * 10**9
_AROUND_NS = 2 * 60 * 10**9
_UNIT = "exhume-record"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("dir", nargs="?", default=DEFAULT, metavar="DIR", help=f"where to ({DEFAULT}); an existing one goes on")
    parser.add_argument("--for", dest="for_ns", type=duration_ns, default=None, metavar="TIME", help="how long (until stopped)")
    parser.add_argument(
        "--budget", type=size_bytes, default="4GiB", metavar="SIZE", help="disk it may use; the oldest minutes go first (4GiB)"
    )
    parser.add_argument(
        "--keep", dest="keep_ns", type=duration_ns, default=None, metavar="TIME", help="age after which minutes go (no limit)"
    )
    parser.add_argument("--hz", type=int, default=97, metavar="N", help="stack samples a second of each core (97), 0 for none")
    parser.add_argument("--kernel-only", action="store_true", help="leave the frames of user space out")
    parser.add_argument(
        "--on",
        metavar="KIND,...",
        help="keep a rolling window (15m), pin the minutes around such findings, tell why; or any",
    )
    parser.add_argument(
        "--around", dest="around_ns", type=duration_ns, default=None, metavar="TIME", help="what to pin around them (2m)"
    )
    parser.add_argument("--json", action="store_true", help="with --on: verdicts as JSON, one a line, on standard output")
    parser.add_argument("--detach", action="store_true", help="run as a transient systemd unit, and return")
    parser.add_argument("--quiet", action="store_true", help="no progress line")
    parser.add_argument("--no-latency", action="store_true", help="do not watch for stalls (exhume latency)")
    parser.add_argument("--host", default="/", metavar="DIR", help="record the node whose / is mounted at DIR")
    parser.add_argument("--log-root", metavar="DIR", help="take the kernel's log from DIR/dev/kmsg (as exhume lab makes it)")
    parser.add_argument("--config", metavar="FILE", help="settings (default: EXHUME_CONFIG or /etc/exhume/exhume.toml)")


def run(args: argparse.Namespace) -> int:
    from exhume.cli.record_trigger import kinds_of

    kinds = kinds_of(args.on)
    if args.hz and not 1 <= args.hz <= 999:
        raise UsageError("--hz must be between 1 and 999, or 0 for no samples; 49, 97, 99 and 999 are usual")
    if args.budget < SMALLEST_BUDGET:
        raise UsageError(f"--budget must be {size(SMALLEST_BUDGET)} or more")
    if args.for_ns is not None and args.for_ns < 10**9:
        raise UsageError("--for must be 1s or more; `exhume check` is for shorter looks")
    if args.around_ns is not None and not kinds:
        raise UsageError("--around says how much to pin around findings: name their kinds with --on")
    if args.json and not kinds:
        raise UsageError("--json prints the verdicts on incidents: name their kinds with --on, or say --on any")
    if args.around_ns is None:
        args.around_ns = _AROUND_NS
    if args.host != "/" and not os.path.exists(os.path.join(args.host, "proc/stat")):
        raise ExhumeError(f"{args.host} is not the root of a node: there is no {os.path.join(args.host, 'proc/stat')}")
    if args.detach:
        return _detach(args)
    return _record(args, kinds)


def _record(args: argparse.Namespace, kinds: tuple[str, ...]) -> int:
    import gc
    from dataclasses import replace

    from exhume.cli.record_trigger import session
    from exhume.cli.stopping import Stopping
    from exhume.config import load, section
    from exhume.host.root import Root
    from exhume.recorder.policy import Policy
    from exhume.recorder.profiles import FLIGHT
    from exhume.recorder.recorder import Options, Recorder
    from exhume.recorder.samples import Options as SampleOptions
    from exhume.sources.sampling.memory import in_one_place

    # Arrow's own allocator keeps what sealing needs, once a minute, for good; the C library can be made to give it back.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    try:
        from exhume.recording.writer import Writer
    except ImportError:
        raise ExhumeError("recording needs pyarrow: pip install '.[record]' in a clone of exhume") from None

    in_one_place()
    log = Root(args.log_root) if args.log_root else None
    profile = replace(FLIGHT, latency=None) if args.no_latency else FLIGHT
    samples = SampleOptions(args.hz, args.kernel_only) if args.hz else None
    policy = section(load(args.config), "record", Policy)
    recorder = Recorder(Root(args.host), profile, Options(samples, log=log, policy=policy))
    try:
        keep_ns = args.keep_ns if args.keep_ns is not None else _TRIGGER_KEEP_NS if kinds else 0
        if kinds and args.keep_ns is None:
            _spare(args.dir)
        make_place(args.dir)
        writer = Writer(
            args.dir,
            recorder.node,
            {**recorder.about, "keep_ns": keep_ns},
            budget_bytes=args.budget,
            keep_ns=keep_ns,
            segment_ns=segment_ns(),
            pins_go=bool(kinds),
        )
        line = not args.quiet and sys.stderr.isatty()
        watching = session(args, policy, recorder.node, writer, kinds, line) if kinds else None
        watch = _Watch(args, writer, watching, line)
        gc.collect()
        gc.freeze()
        try:
            with Stopping() as stopping:
                watch.begin(recorder.off)
                recorder.run(writer, args.for_ns or 0, stopping, watch)
        finally:
            if watching is not None:
                watching.end()
            writer.close()
            if watching is not None:
                watching.finish()
    finally:
        recorder.close()
    watch.end()
    return EXIT_HEALTHY if watch.samples or not args.hz or watch.batches else EXIT_CANNOT_JUDGE


def segment_ns() -> int:
    """A minute; tests and demonstrations take shorter ones."""
    text = os.environ.get("EXHUME_SEGMENT_S", "60")
    if not text.isdecimal() or not 1 <= int(text) <= 3600:
        raise UsageError(f"EXHUME_SEGMENT_S is {text!r}: it takes whole seconds, up to 3600")
    return int(text) * 10**9


def _spare(path: str) -> None:
    """With --on the last 15 minutes are kept: what somebody recorded before, to keep it, is not to go for that."""
    from exhume.recording.folder import Folder

    try:
        folder = Folder(path)
        begin, end = folder.window
    except ExhumeError:
        return
    kept = folder.about.get("keep_ns")
    if end - begin > _TRIGGER_KEEP_NS and not kept:
        raise Refused(
            f"{path} holds {duration(end - begin)} of a recording, of which --on would keep the last 15 minutes: "
            "name another directory, or say with --keep how much shall stay"
        )


def make_place(path: str) -> None:
    """The default's parents are made; others must be there: what belongs on a disk that is not mounted is not to fill /."""
    try:
        if path == DEFAULT:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        elif not os.path.isdir(above := os.path.dirname(os.path.abspath(path))):
            raise ExhumeError(f"there is no {above}: make it first (mkdir -p), or mount what should be there")
    except OSError as error:
        raise ExhumeError(f"{path} cannot be made: {error.strerror}; name another directory") from None


class _Watch:
    """Hears of every batch: the progress line, the session, and what is said at the end."""

    def __init__(self, args: argparse.Namespace, writer: "Writer", session: "Session[Report] | None", line: bool) -> None:
        # Loaded now: the readers may use up the limit of open files, and an import needs one.
        import shutil  # noqa: F401

        from exhume.cli import record_text  # noqa: F401
        from exhume.recorder.session import OncePerEpisode

        self.samples = self.batches = 0
        self._args = args
        self._writer = writer
        self._session = session
        self._line = line
        self._report = OncePerEpisode(self._warn)
        self._first: Status | None = None
        self._last: Status | None = None

    def begin(self, off: str) -> None:
        if self._args.quiet:
            return
        _say(f"recording to {self._args.dir}; {'Ctrl-C' if self._line else 'SIGTERM'} ends it")
        if off and self._args.hz:
            _say(f"no stack samples: {off}")

    def __call__(self, status: "Status") -> None:
        import shutil

        from exhume.cli.record_text import progress

        self.samples += status.samples
        self.batches += 1
        if self._session is not None:
            self._session.see(status.rows)
        self._report_troubles()
        if self._line:
            columns = shutil.get_terminal_size((100, 30)).columns
            sys.stderr.write("\r\x1b[K" + progress(status, self._last)[: max(20, columns - 1)])
            sys.stderr.flush()
        self._first = self._first or status
        self._last = status

    def end(self) -> None:
        if self._line:
            sys.stderr.write("\r\x1b[K")
        self._report_troubles()
        if self._args.quiet or self._first is None or self._last is None:
            return
        from exhume.cli.record_text import closing

        last = self._last._replace(size_bytes=self._writer.size_bytes)
        incidents = self._session.incidents if self._session is not None else 0
        print(
            closing(self._args.dir, self._first, last, self.samples, incidents),
            file=sys.stderr if self._args.json else sys.stdout,
        )

    def _report_troubles(self) -> None:
        for trouble in self._writer.take_troubles():
            self._report(trouble)

    def _warn(self, text: str) -> None:
        if self._line:
            sys.stderr.write("\r\x1b[K")
        _say(text)


def _say(text: str) -> None:
    sys.stderr.write(f"exhume: {text}\n")
    sys.stderr.flush()


def _detach(args: argparse.Namespace) -> int:
    """systemd runs it from now on: journal, resource accounting, `systemctl stop`."""
    import shutil
    import subprocess

    if not os.path.isdir("/run/systemd/system") or shutil.which("systemd-run") is None:
        raise ExhumeError("--detach needs systemd; without it: setsid exhume record --quiet DIR </dev/null >/dev/null 2>&1 &")
    command = python("-m", "exhume", "record", os.path.abspath(args.dir), "--quiet", "--hz", str(args.hz))
    command += ["--budget", str(args.budget), "--host", args.host]
    command += ["--no-latency"] if args.no_latency else []
    command += ["--log-root", os.path.abspath(args.log_root)] if args.log_root else []
    for option, value in (("--for", args.for_ns), ("--keep", args.keep_ns)):
        if value:
            command += [option, compact(value)]
    if args.on:
        command += ["--on", args.on, "--around", compact(args.around_ns), *(["--json"] if args.json else [])]
    if args.config:
        command += ["--config", os.path.abspath(args.config)]
    if args.kernel_only:
        command.append("--kernel-only")
    unit = ["systemd-run", f"--unit={_UNIT}", "--collect", "--quiet", "--description=exhume flight recorder"]
    unit += ["--property=TimeoutStopSec=90", "--property=Restart=on-failure", "--property=RestartSec=5"]
    unit += ["--property=StartLimitIntervalSec=300", "--property=StartLimitBurst=5"]
    if "PYTHONPATH" in os.environ:
        unit.append(f"--setenv=PYTHONPATH={os.environ['PYTHONPATH']}")
    done = subprocess.run([*unit, "--", *command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ExhumeError(f"systemd did not start it: {done.stderr.strip() or 'no reason given'}")
    print(f"recording to {args.dir} as {_UNIT}.service; `systemctl stop {_UNIT}` ends it, `exhume info {args.dir}` looks in")
    return EXIT_HEALTHY
