"""The gate without a running node: what an audit of the image finds, as checks."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from exhume.host.directory import Directory
from exhume.image.audit_tree import audit_tree
from exhume.image.gate_image import GENERATORS, HARMFUL, UNLISTED, UNREAD, image_checks
from exhume.image.gate_model import Check
from exhume.image.policy import Listed, Policy, drift, first_policy
from tests.image.incident import incident

TODAY = date(2026, 4, 1)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return incident(tmp_path_factory.mktemp("gate") / "image")


def judged(image: Path, policy: Policy | None = None) -> dict[str, Check]:
    with Directory(str(image)) as tree:
        return {check.name: check for check in image_checks(audit_tree(tree, policy, today=TODAY), policy)}


def owned(image: Path, **changes: Listed) -> Policy:
    """A policy of all that starts, each with an owner, but for changes."""
    with Directory(str(image)) as tree:
        listed = first_policy(unit.service for unit in audit_tree(tree).units).agents
    return Policy(tuple(changes.get(one.name.split(".")[0], Listed(one.name, "platform", one.purpose)) for one in listed))


def test_the_incidents_image_fails_by_its_files_alone(image: Path) -> None:
    checks = judged(image)
    assert set(checks) == {HARMFUL}
    check = checks[HARMFUL]
    assert check.status == "failed"
    (ecs,) = (blamed for blamed in check.blamed if blamed.subject == "ecs.service")
    assert ecs.path == "/lib/systemd/system/ecs.service"
    assert "a start every 10 s makes 1 in 10 s, and the limit is 5" in ecs.message


def test_what_the_policy_keeps_passes(image: Path) -> None:
    checks = judged(image, owned(image, ecs=Listed("ecs.service", "compute", "needed for batch jobs", keep=True)))
    assert checks[UNLISTED].status == "passed"
    assert "ecs.service" not in {blamed.subject for blamed in checks[HARMFUL].blamed}


def test_whatever_starts_and_is_not_listed_fails(image: Path) -> None:
    whole = owned(image)
    without = Policy(tuple(one for one in whole.agents if one.name != "metrics-shim.service"))
    check = judged(image, without)[UNLISTED]
    assert check.status == "failed"
    assert [(blamed.subject, blamed.path) for blamed in check.blamed] == [
        ("metrics-shim.service", "/lib/systemd/system/metrics-shim.service")
    ]
    assert judged(image, whole)[UNLISTED].status == "passed"
    every = judged(image, Policy())[UNLISTED]
    assert every.measured == len(every.blamed) == len(whole.agents)


def test_what_nobody_owns_or_is_past_its_date_is_a_warning(image: Path) -> None:
    policy = owned(image, cron=Listed("cron.service"), ssh=Listed("ssh.service", "platform", review=date(2026, 1, 1)))
    check = judged(image, policy)[UNLISTED]
    assert check.status == "warning"
    assert {blamed.subject for blamed in check.blamed} == {"cron.service", "ssh.service"}


def test_a_service_in_an_image_that_may_not_have_it_fails(image: Path) -> None:
    check = judged(image, owned(image, ssh=Listed("ssh.service", "platform", images=("build-*",))))[UNLISTED]
    assert check.status == "failed"
    assert [blamed.subject for blamed in check.blamed] == ["ssh.service"]


def test_an_empty_directory_is_not_an_image_without_faults(tmp_path: Path) -> None:
    checks = judged(tmp_path, Policy())
    assert {check.status for check in checks.values()} == {"unknown"}
    assert set(checks) == {HARMFUL, UNLISTED}


def test_units_of_which_none_starts_are_half_an_image(tmp_path: Path) -> None:
    place = tmp_path / "usr/lib/systemd/system"
    place.mkdir(parents=True)
    (place / "agent.service").write_text("[Service]\nExecStart=/opt/agent\nRestart=always\nRestartSec=10\n")
    assert {check.status for check in judged(tmp_path, Policy()).values()} == {"unknown"}


def test_what_could_not_be_read_is_no_pass(image: Path) -> None:
    assert UNREAD not in judged(image)
    with Directory(str(image)) as tree:
        whole = audit_tree(tree, None)
    said = "/etc/systemd/system cannot be read: Permission denied."
    for trouble, status, code in ((said, "unknown", 3), ("/etc/cron.d/x: line 3 is not understood.", "warning", 0)):
        hidden = replace(whole, inventory=replace(whole.inventory, troubles=(trouble,)), findings=(), drift=())
        checks = {check.name: check for check in image_checks(hidden, None)}
        assert checks[UNREAD].status == status
        assert trouble in checks[UNREAD].message
        assert hidden.exit_code == code


def test_a_generator_that_is_not_known_is_no_pass_until_somebody_answers_for_it(image: Path) -> None:
    path = "/usr/lib/systemd/system-generators/fleet-\x1b[31m-generator"
    with Directory(str(image)) as tree:
        audit = audit_tree(tree, today=TODAY)
    assert GENERATORS not in {check.name for check in image_checks(audit, None)}
    strange = replace(audit, inventory=replace(audit.inventory, unknown=(path,)))
    (check,) = (check for check in image_checks(strange, None) if check.name == GENERATORS)
    assert check.status == "warning"
    assert [blamed.path for blamed in check.blamed] == [path]
    assert "\x1b" not in check.message
    listed = Policy((Listed("/usr/lib/systemd/system-generators/fleet-*", "platform", "names its own units"),))
    assert GENERATORS not in {check.name for check in image_checks(strange, listed)}
    assert drift(listed, strange.inventory, TODAY)[-1].kind != "gone"
