"""Kinds that follow from nothing else here, or only have a next step."""

from exhume.verdict.hypotheses.fixing import fix_unit
from exhume.verdict.hypotheses.model import Hypothesis

NIC_RESET = Hypothesis(
    "nic-reset",
    harm="starve {subject} until its driver resets",
    step="dmesg -T | grep {subject} shows what the driver said before it gave up",
)
OBSERVER_STARVED = Hypothesis(
    "observer-starved",
    step="run it again with chrt -r 1 exhume check, and look at what holds the cores: top -b -n 1 -H",
)
UNUSED_AGENT = Hypothesis(
    "unused-agent",
    step="systemctl list-dependencies --reverse {subject} shows who needs it; exhume fix {subject} if nobody does",
    remedies=lambda finding, case: fix_unit(finding, finding.subject),
)
