"""exhume audit of an image with as many units as nobody has."""

import json
from pathlib import Path

import pytest

from tests.cli.test_audit import exhume
from tests.image.incident import incident, link, write


@pytest.mark.ci
def test_five_thousand_units_are_judged(tmp_path: Path) -> None:
    """The time is measured by bench/audit.py; here, that all of them come through with what they need of each other."""
    root = incident(tmp_path / "root")
    for number in range(5000):
        above = f"Requires=agent-{number - 1}.service\n" if number % 2 else ""
        write(root, f"lib/systemd/system/agent-{number}.service", f"[Unit]\n{above}[Service]\nExecStart=/bin/agent {number}\n")
        if number % 2:
            link(
                root,
                f"etc/systemd/system/multi-user.target.wants/agent-{number}.service",
                f"/lib/systemd/system/agent-{number}.service",
            )
    document = json.loads(exhume("--root", root, "--json").stdout)
    agents = [one for one in document["units"] if one["name"].startswith("agent-")]
    assert len(agents) == 5000
    assert {one["judgement"] for one in agents if one["needed_by"]} == {"needed"}
    assert sum(one["starts"] for one in agents) == 5000
