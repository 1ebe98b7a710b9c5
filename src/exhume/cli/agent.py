"""exhume agent: the standing service."""

import argparse
import signal
import sys
from typing import Any

from exhume.errors import EXIT_HEALTHY, ExhumeError

DESCRIPTION = """\
The flight recorder that is left on: it keeps the last minutes, pins what surrounds an incident, says why it came, and serves
metrics for Prometheus on loopback. It reads everything it needs and changes nothing on the node; it watches its own cost, and
gives up one source after the other rather than to starve the node."""
EPILOG = """\
examples:
  sudo exhume agent                                    metrics at http://127.0.0.1:9464/metrics
  sudo exhume agent --dir /data/rec --listen 0.0.0.0:9464
  exhume agent --print-config > /etc/exhume/exhume.toml
  kill -HUP PID                                        read the settings again

Every setting of [agent] can be given by the environment as well: EXHUME_AGENT_HZ=97, EXHUME_AGENT_PUSH_URL=...
exit code: 0 done, 2 failed or refused, 3 could not"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("--config", metavar="FILE", help="settings (default: EXHUME_CONFIG or /etc/exhume/exhume.toml)")
    parser.add_argument("--dir", metavar="DIR", help="where the recording is kept (/var/lib/exhume/recording)")
    parser.add_argument("--listen", metavar="ADDRESS:PORT", help="where metrics are served (127.0.0.1:9464)")
    parser.add_argument("--host", metavar="DIR", help="the node whose / is mounted at DIR")
    parser.add_argument("--print-config", action="store_true", help="print what is set, with what it means, and end")


def run(args: argparse.Namespace) -> int:
    from exhume.agent import settings as reading

    given: dict[str, Any] = {"dir": args.dir, "listen": args.listen, "host": args.host}
    settings, thresholds = reading.read(args.config, **given)
    if args.print_config:
        print(reading.as_toml(settings), end="")
        return EXIT_HEALTHY
    import os

    from exhume.cli.record import make_place
    from exhume.cli.record_trigger import kinds_of
    from exhume.cli.stopping import Stopping
    from exhume.profile.memory import in_one_place
    from exhume.recorder.verdicts import WINDOW_S

    kinds = kinds_of(settings.on)
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    in_one_place()
    try:
        from exhume.agent.service import Service
    except ImportError as error:
        raise ExhumeError(f"the agent needs {error.name}: pip install 'exhume[agent]'") from None
    program = [sys.executable, "-m", "exhume"]
    config = ["--config", args.config] if args.config else []
    diagnose = [*program, "diagnose", settings.dir, f"--from=-{WINDOW_S}s", "--json", *config]
    audit = [*program, "audit", "--json", "--host", settings.host]
    audit += ["--policy", settings.audit.policy] if settings.audit.policy else []
    make_place(settings.dir)
    with Stopping() as stopping:
        service = Service(settings, thresholds, kinds, _say, diagnose, audit)

        def again(*_: object) -> None:
            try:
                service.begin_again(*reading.read(args.config, **given))
                _say("the settings were read again")
            except ExhumeError as error:
                _say(f"{error}; the settings stay as they were")

        before = signal.signal(signal.SIGHUP, again)
        host, port = service.door.address
        _say(f"recording to {settings.dir}, metrics at {'https' if settings.tls_cert else 'http'}://{host}:{port}/metrics")
        try:
            service.run(stopping)
        finally:
            signal.signal(signal.SIGHUP, before)
    return EXIT_HEALTHY


def _say(text: str) -> None:
    sys.stderr.write(f"exhume: {text}\n")
    sys.stderr.flush()
