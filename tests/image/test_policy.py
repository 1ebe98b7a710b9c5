"""The lifecycle policy: what it takes, what it refuses, and how it tells an image that has come apart from it."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import UsageError
from exhume.host.service import Inventory, Service
from exhume.image.policy import Drift, Listed, Policy, drift, first_policy, image_names, parse, write

TODAY = date(2026, 11, 16)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
LISTED = st.builds(
    Listed,
    NAMES,
    TEXTS,
    TEXTS,
    st.none() | st.dates(),
    st.lists(NAMES, max_size=3).map(tuple),
    st.booleans(),
)
POLICIES = st.lists(LISTED, max_size=6, unique_by=lambda one: one.name).map(lambda agents: Policy(tuple(agents)))


def service(name: str, **more: object) -> Service:
    return Service(**{"name": name, "kind": "unit", "state": "enabled", "starts": True, **more})  # type: ignore[arg-type]


def inventory(*services: Service, system: str = "Debian GNU/Linux 12 (bookworm)", **facts: str) -> Inventory:
    return Inventory(system, services, facts=facts)


def told(policy: Policy, *services: Service) -> list[tuple[str, str]]:
    return [(one.kind, one.name) for one in drift(policy, inventory(*services), TODAY)]


@given(POLICIES, TEXTS)
def test_what_is_written_is_read_back_the_same(policy: Policy, system: str) -> None:
    assert parse(write(policy, system).encode(), "policy.toml") == policy


@given(st.lists(st.text(st.characters(), min_size=1, max_size=20), max_size=8))
def test_a_first_policy_of_any_names_is_read_back_and_leaves_no_new_ones(names: list[str]) -> None:
    services = [service(f"{name}.service", description=name) for name in dict.fromkeys(names)]
    policy = parse(write(first_policy(services)).encode(), "policy.toml")
    assert not [kind for kind, _ in told(policy, *services) if kind in ("new", "gone")]


@given(st.binary(max_size=200))
def test_garbage_is_refused_in_a_sentence_or_read(raw: bytes) -> None:
    complaint = "policy.toml"
    try:
        parse(raw, "policy.toml")
    except UsageError as error:
        complaint = str(error)
    assert complaint.startswith("policy.toml")
    assert complaint.isprintable()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("agent = 1", "agent is not known"),
        ("agents = 3", "agents must be sections"),
        ('schema = "exhume.policy/9"', "schema must be 'exhume.policy/1'"),
        ('[agents."ecs.service"]\nowned = "x"', 'agents."ecs.service".owned is not known, did you mean owner?'),
        ('[agents."ecs.service"]\nowner = 3', 'agents."ecs.service".owner must be text, not 3'),
        ('[agents."ecs.service"]\nreview = "soon"', 'agents."ecs.service".review must be a date as in review = 2027-01-31'),
        ('[agents."ecs.service"]\nreview = 2027-01-31T10:00:00Z', 'agents."ecs.service".review must be a date'),
        ('[agents."ecs.service"]\nimages = "gpu-*"', 'agents."ecs.service".images must be a list of texts'),
        ('[agents."ecs.service"]\nimages = [""]', 'agents."ecs.service".images must be a list of texts'),
        ('[agents."ecs.service"]\nkeep = "yes"', 'agents."ecs.service".keep must be true or false'),
        ("[agents]\nkubelet = true", "agents.kubelet must be a section"),
        ('[agents.""]\nkeep = true', 'agents."" has no name'),
        ("[agents", "is not TOML"),
    ],
)
def test_every_mistake_is_named_by_its_key_path(text: str, named: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text.encode(), "policy.toml")
    assert named in str(caught.value)


def test_a_first_policy_lists_what_starts_in_order_with_owners_left_open() -> None:
    services = [
        service("sshd.service", description="OpenBSD Secure Shell server"),
        service("ecs.service"),
        service("off.service", state="disabled", starts=False),
        service("multi-user.target", state="static"),
        service("systemd-udevd.service", state="static", path="/usr/lib/systemd/system/systemd-udevd.service"),
        Service("/etc/crontab:12", "cron", "enabled", True),
    ]
    text = write(first_policy(services), "Debian")
    assert [one.name for one in parse(text.encode(), "").agents] == ["/etc/crontab:12", "ecs.service", "sshd.service"]
    assert text.count('owner = ""  # nobody yet') == 3
    assert 'purpose = "OpenBSD Secure Shell server"' in text


def test_adding_to_a_policy_keeps_what_it_says() -> None:
    known = Policy((Listed("getty@*.service", "infra"), Listed("ssh.service", "infra", keep=True)))
    more = first_policy([service("ssh.service"), service("getty@tty1.service"), service("ecs.service")], known)
    assert more.agents == (Listed("ecs.service"), *known.agents)


def test_drift_is_new_gone_past_its_date_without_owner_and_not_allowed() -> None:
    policy = Policy(
        (
            Listed("old.service", "infra", review=date(2026, 11, 1)),
            Listed("due.service", "infra", review=TODAY),
            Listed("orphan.service", " "),
            Listed("gone.service", "infra"),
            Listed("gpu.service", "ml", images=("gpu-*",)),
            Listed("elsewhere.service", "ml", images=("gpu-*",)),
        )
    )
    there = [service(f"{name}.service") for name in ("old", "due", "orphan", "gpu", "ecs")]
    assert told(policy, *there) == [
        ("not-allowed", "gpu.service"),
        ("new", "ecs.service"),
        ("past-review", "old.service"),
        ("no-owner", "orphan.service"),
        ("gone", "gone.service"),
    ]
    messages = {one.name: one.message for one in drift(policy, inventory(*there), TODAY)}
    assert messages["old.service"] == "it was to be reviewed by 2026-11-01, 15 d ago"
    assert messages["gpu.service"] == "it is allowed in gpu-*, and this is Debian GNU/Linux 12 (bookworm)"


def test_a_glob_stands_for_instances_and_an_exact_name_goes_before_it() -> None:
    policy = Policy((Listed("getty@*.service", "infra"), Listed("getty@tty9.service", "")))
    assert told(policy, service("getty@tty1.service"), service("getty@tty2.service"), service("getty@tty9.service")) == [
        ("no-owner", "getty@tty9.service")
    ]


def test_an_image_is_known_by_its_id_its_name_and_its_file() -> None:
    here = inventory(service("a.service"), system="Ubuntu 20.04", image_id="gpu-base", file="root.img")
    assert image_names(here) == ("gpu-base", "Ubuntu 20.04", "root.img")
    for glob in ("gpu-*", "Ubuntu*", "*.img"):
        assert drift(Policy((Listed("a.service", "x", images=(glob,)),)), here, TODAY) == ()
    refused = drift(Policy((Listed("a.service", "x", images=("cpu-*",)),)), here, TODAY)
    assert refused == (
        Drift("not-allowed", "a.service", "it is allowed in cpu-*, and this is gpu-base or Ubuntu 20.04 or root.img"),
    )


def test_a_unit_that_does_not_start_is_no_drift() -> None:
    assert told(Policy(), service("off.service", state="disabled", starts=False)) == []


def test_a_policy_may_call_a_unit_by_another_of_its_names() -> None:
    ssh = service("ssh.service", aliases=("sshd.service",))
    policy = Policy((Listed("sshd.service", "platform"),))
    assert told(policy, ssh) == []
    assert first_policy([ssh], policy) == policy
    assert told(policy, service("ssh.service")) == [("new", "ssh.service"), ("gone", "sshd.service")]
