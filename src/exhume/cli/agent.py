"""exhume agent: the standing service."""

import argparse
import signal
import sys
from contextlib import suppress
from typing import Any

from exhume.cli import agent_print
from exhume.errors import EXIT_HEALTHY, ExhumeError
from exhume.host.quantities import SECOND, compact
from exhume.python import python

DESCRIPTION = """\
The flight recorder that is left on: it keeps the last minutes, pins what surrounds an incident, says why it came, and serves
metrics for Prometheus on loopback. It reads everything it needs and changes nothing on the node; it watches its own cost, and
gives up one source after the other rather than to starve the node."""
EPILOG = """\
examples:
  sudo exhume agent                                    metrics at http://127.0.0.1:9464/metrics
  sudo exhume agent --dir /data/rec --listen 0.0.0.0:9464
  exhume agent --print-config > new.toml               as it is set now, to begin with; [agent] of /etc/exhume/exhume.toml
  exhume agent --print-rules > rules.yml               alerts for Prometheus; --print-dashboard node, fleet for Grafana
  kill -HUP PID                                        read the settings again

Every setting of [agent] can be given by the environment as well: EXHUME_AGENT_HZ=97, EXHUME_AGENT_PUSH_URL=...
exit code: 0 done, 2 failed or refused, 3 could not, 64 wrong usage or settings"""

# Objects between collections: what clients that talk nonsense leave behind is not to wait for our own tidying, once a minute.
_COLLECT_AFTER = 50_000


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("--config", metavar="FILE", help="settings (default: EXHUME_CONFIG or /etc/exhume/exhume.toml)")
    parser.add_argument("--dir", metavar="DIR", help="where the recording is kept (/var/lib/exhume/recording)")
    parser.add_argument("--listen", metavar="ADDRESS:PORT", help="where metrics are served (127.0.0.1:9464)")
    parser.add_argument("--host", metavar="DIR", help="the node whose / is mounted at DIR")
    parser.add_argument("--log-root", metavar="DIR", help="take the kernel's log from DIR/dev/kmsg (as exhume lab makes it)")
    parser.add_argument("--print-config", action="store_true", help="print what is set, with what it means, and end")
    agent_print.arguments(parser)


def run(args: argparse.Namespace) -> int:
    if text := agent_print.printed(args):
        print(text, end="")
        return EXIT_HEALTHY
    from exhume.agent import settings as reading

    given: dict[str, Any] = {"dir": args.dir, "listen": args.listen, "host": args.host}
    settings, thresholds = reading.read(args.config, **given)
    kinds = _kinds(settings.on)
    if args.print_config:
        print(reading.as_toml(settings), end="")
        return EXIT_HEALTHY
    import gc
    import os

    from exhume.cli.record import make_place, segment_ns
    from exhume.cli.stopping import Stopping
    from exhume.errors import UsageError
    from exhume.host.root import Root
    from exhume.recorder.verdicts import WINDOW_S
    from exhume.sources.sampling.memory import in_one_place

    if not os.path.exists(os.path.join(settings.host, "proc/stat")):
        raise UsageError(f"agent.host {settings.host} is not the root of a node: there is no proc/stat in it")
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    in_one_place()
    try:
        from exhume.agent.service import Service
    except ImportError as error:
        raise ExhumeError(f"the agent needs {error.name}: pip install '.[agent]' in a clone of exhume") from None
    program = python("-m", "exhume")
    config = ["--config", args.config] if args.config else []
    diagnose = [*program, "diagnose", settings.dir, f"--from=-{compact(WINDOW_S * SECOND)}", "--json", *config]
    audit = [*program, "audit", "--json", "--host", settings.host]
    make_place(settings.dir)
    log = Root(args.log_root) if args.log_root else None
    with Stopping() as stopping:
        service = Service(settings, thresholds, kinds, _say, diagnose, audit, log, segment_ns())

        def again(*_: object) -> None:
            try:
                settings, thresholds = reading.read(args.config, **given)
                service.begin_again(settings, thresholds, _kinds(settings.on))
                _say("the settings were read again")
            except ExhumeError as error:
                _say(f"{error}; the settings stay as they were")

        before = signal.signal(signal.SIGHUP, again)
        host, port = service.door.address
        shown = f"[{host}]" if ":" in host else host
        _say(f"recording to {settings.dir}, metrics at {'https' if settings.tls_cert else 'http'}://{shown}:{port}/metrics")
        gc.collect()
        gc.freeze()
        gc.set_threshold(_COLLECT_AFTER)
        gc.enable()
        try:
            service.run(stopping)
        finally:
            signal.signal(signal.SIGHUP, before)
    return EXIT_HEALTHY


def _kinds(on: str) -> tuple[str, ...]:
    """Of agent.on; it is the same as what --on of `exhume record` takes."""
    from exhume.cli.record_trigger import kinds_of
    from exhume.errors import UsageError

    try:
        return kinds_of(on)
    except UsageError as error:
        raise UsageError(str(error).replace("--on", "agent.on", 1)) from None


def _say(text: str) -> None:
    with suppress(OSError, ValueError):  # a full disk, or whoever listened has gone: that is no reason to end the recording
        sys.stderr.write(f"exhume: {text}\n")
        sys.stderr.flush()
