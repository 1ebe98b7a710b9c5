"""Looks the locked dependencies up among known vulnerabilities: `audit.py [--must] [--with PIP_AUDIT]`.

Exit code 0: none is known, or nothing could be looked up (it says which). 2: there are some, and they are listed. 3: with
--must, something could not be looked up. It needs a network that reaches the advisories; without one it says so.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
LOCKS = ("requirements/core.lock", "deploy/onefile/tools.lock", "requirements/tools.lock", "requirements/dev.lock")
_TIMEOUT_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one lock file."""

    looked_up: int
    vulnerable: tuple[str, ...]
    unknown: tuple[str, ...]
    """Packages that no advisory could be had for; pip-audit itself passes them over, and ends well."""
    failure: str = ""
    """Why nothing was looked up."""


def understood(output: str, errors: str) -> Outcome:
    """What pip-audit's JSON says. Its exit code tells nothing: 1 is a vulnerability, or a network that is not there."""
    try:
        listed = json.loads(output)["dependencies"]
        known = [one for one in listed if "skip_reason" not in one]
        unknown = tuple(str(one["name"]) for one in listed if "skip_reason" in one)
        vulnerable = tuple(
            f"{one['name']} {one['version']}: {found['id']}, fixed in {', '.join(found['fix_versions']) or 'no release yet'}"
            for one in known
            for found in one["vulns"]
        )
    except (ValueError, KeyError, TypeError):
        lines = errors.strip().splitlines()
        return Outcome(0, (), (), lines[-1] if lines else "pip-audit said nothing")
    if not known:
        return Outcome(0, (), unknown, "no advisory of any package could be had" if unknown else "pip-audit saw no package")
    return Outcome(len(known), vulnerable, unknown)


def run(program: str, lock: Path) -> Outcome:
    command = [program, "--progress-spinner", "off", "--require-hashes", "--disable-pip", "--format", "json", "-r", str(lock)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Outcome(0, (), (), str(error))
    return understood(done.stdout, done.stderr)


def installed(directory: str) -> str:
    """pip-audit as tools.lock has it; an empty string if it could not be installed."""
    venv.create(directory, with_pip=True)
    lock = str(TOP / "requirements/tools.lock")
    pip = [
        f"{directory}/bin/python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--require-hashes",
        "-r",
        lock,
    ]
    return f"{directory}/bin/pip-audit" if subprocess.run(pip, stdout=sys.stderr).returncode == 0 else ""


def report(outcomes: dict[str, Outcome], must: bool) -> int:
    """Print them, and the exit code that they amount to."""
    for name, outcome in outcomes.items():
        if outcome.failure:
            print(f"{name}: NOT AUDITED, the advisories could not be reached: {outcome.failure}")
            continue
        print(f"{name}: {outcome.looked_up} packages looked up, {len(outcome.vulnerable)} known vulnerabilities")
        for line in outcome.vulnerable:
            print(f"  {line}")
        if outcome.unknown:
            print(f"  NOT AUDITED, no advisories could be had: {', '.join(outcome.unknown)}")
    if any(outcome.vulnerable for outcome in outcomes.values()):
        return 2
    missing = any(outcome.failure or outcome.unknown for outcome in outcomes.values())
    return 3 if must and missing else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Look the locked dependencies up among known vulnerabilities.")
    parser.add_argument("--must", action="store_true", help="fail (3) when something could not be looked up")
    parser.add_argument("--with", dest="program", metavar="PIP_AUDIT", help="this pip-audit (default: install tools.lock)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="exhume-audit-") as directory:
        program = args.program or installed(directory)
        if not program:
            return report(dict.fromkeys(LOCKS, Outcome(0, (), (), "pip-audit could not be installed")), args.must)
        return report({name: run(program, TOP / name) for name in LOCKS}, args.must)


if __name__ == "__main__":
    sys.exit(main())
