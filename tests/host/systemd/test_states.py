"""States of odd trees against `systemctl --root list-unit-files`: whatever lies there, both must say the same."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.host.systemd.units import read_units
from tests.examples import examples
from tests.host.systemd.written import tree

ETC, RUN, VENDOR = "/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system"
NAMES = ("a.service", "b.service", "t@.service", "t@x.service", "u@.service", "u@x.service", "a.timer", "m.mount", "not-a-unit")
TEXTS = (
    "",
    "[Unit]\n",
    "[Install]\nWantedBy=multi-user.target\n",
    "[Install]\nAlias=b.service\n",
    "[Install]\nAlias=b.service u@.service\nAlias=\n",
    "[Install]\nWantedBy=multi-user.target\nDefaultInstance=x\n",
    "[Install]\nAlso=a.timer\n",
    "[Install\n",
    "[Install]\nRequiredBy='x.target'\n",
)
paths = st.builds("{}/{}".format, st.sampled_from((ETC, RUN, VENDOR, "/opt")), st.sampled_from(NAMES))
wants = st.builds(
    "{}/multi-user.target.{}/{}".format,
    st.sampled_from((ETC, RUN, VENDOR)),
    st.sampled_from(("wants", "requires")),
    st.sampled_from(NAMES),
)
drop_ins = st.builds("{}/{}.d/x.conf".format, st.sampled_from((ETC, VENDOR)), st.sampled_from((*NAMES, "service")))
targets = st.one_of(
    paths, st.sampled_from(("/dev/null", "a.service", "../a.service", "t@.service", "/nowhere/a.service", "b.service"))
)


def said(root: Path) -> dict[str, str]:
    command = ["systemctl", f"--root={root}", "list-unit-files", "--no-legend", "--no-pager"]
    text = subprocess.run(command, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}).stdout
    return {words[0]: words[1] for line in text.splitlines() if (words := line.split())}


@pytest.mark.skipif(shutil.which("systemctl") is None, reason="there is no systemctl to ask")
@settings(max_examples=examples(150))
@given(
    files=st.dictionaries(st.one_of(paths, drop_ins), st.sampled_from(TEXTS), max_size=6),
    links=st.dictionaries(st.one_of(paths, wants), targets, max_size=6),
)
def test_any_tree_has_the_states_that_systemctl_says(files: dict[str, str], links: dict[str, str]) -> None:
    files = {path: text for path, text in files.items() if path not in links}
    with tempfile.TemporaryDirectory(prefix="exhume-test-") as place:
        root = Path(place)
        for directory in (ETC, VENDOR):
            (root / directory.lstrip("/")).mkdir(parents=True)
        with tree(root, files, links) as image:
            assert read_units(image).files() == said(root)
