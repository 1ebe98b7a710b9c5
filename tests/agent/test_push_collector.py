"""Profiles as OTLP through a real collector: it understands them, and hands on what was sent to it."""

from pathlib import Path

import pytest

from exhume.agent.settings import Push
from tests.agent.collector import collecting
from tests.agent.push_reading import otlp
from tests.agent.push_receiver import receiving
from tests.agent.pushers import impatient, pushing, send  # noqa: F401
from tests.render.made import BEGIN, REAL, SECOND, write

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("impatient")]


def test_a_profile_that_goes_through_a_collector_is_what_was_pushed(tmp_path: Path) -> None:
    write(tmp_path / "rec")
    with receiving() as behind, collecting(tmp_path, behind.url) as address, receiving() as beside:
        read = []
        for place, url, receiver in (("beside", beside.url, beside), ("through", address, behind)):
            push = Push(url=url, form="otlp", every_s=5, labels=("zone=b",))
            (tmp_path / place).mkdir()
            (tmp_path / place / "rec").symlink_to(tmp_path / "rec")
            with pushing(tmp_path / place, push) as agent:
                agent.pusher.look(BEGIN)
                agent.pusher.look(BEGIN + 5 * SECOND)
                agent.until(lambda agent=agent: agent.counted("sent") == 1, "sent")  # type: ignore[misc]
                assert agent.said == []
            read.append(otlp(receiver.wait(1)[0].body))
    pushed, came = read
    assert came == pushed
    assert came.start_real == REAL
    assert came.resource["zone"] == "b"
    assert sum(came.read.rows.values()) > 0


def test_a_collector_refuses_what_is_no_profile(tmp_path: Path) -> None:
    with receiving() as behind, collecting(tmp_path, behind.url) as address:
        outcome = send(Push(url=address, form="otlp"), body=b"no profile")
        assert (outcome.state, outcome.answered, outcome.detail.partition(" ")[0]) == ("failed", True, "400")
        assert behind.came == []
