import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import Unreadable
from exhume.kernel.bpf import privileges
from exhume.kernel.bpf.features import HERE, Features, unavailable
from exhume.kernel.bpf.instruction import Helper
from exhume.kernel.bpf.tracefs import Field, Tracefs, TracefsError, parse_format
from tests.kernel.bpf.needs import needs_bpf

ALL_CAPABILITIES = "000001ffffffffff"


def node(root: Path, **files: str) -> str:
    names = {
        "status": "proc/self/status",
        "uid_map": "proc/self/uid_map",
        "disabled": "proc/sys/kernel/unprivileged_bpf_disabled",
        "lockdown": "sys/kernel/security/lockdown",
    }
    for name, text in files.items():
        path = root / names[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def test_a_missing_capability_is_named_with_the_switch_that_makes_it_matter(tmp_path: Path) -> None:
    only_bpf = f"{1 << 39:016x}"
    root = node(tmp_path, status=f"Name:\tx\nCapEff:\t{only_bpf}\n", disabled="2\n")
    assert privileges.reason(root) == (
        "it takes CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN; this process lacks CAP_PERFMON; "
        "kernel.unprivileged_bpf_disabled is 2"
    )


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"lockdown": "none integrity [confidentiality]\n"}, "locked down"),
        ({"uid_map": "         0     100000      65536\n"}, "user namespace"),
        ({"status": f"CapEff:\t{ALL_CAPABILITIES}\nSeccomp:\t2\n"}, "seccomp"),
        (
            {"uid_map": "         0          0 4294967295\n", "lockdown": "[none] integrity confidentiality\n"},
            "security module",
        ),
    ],
)
def test_with_all_capabilities_the_reason_is_looked_for_elsewhere(tmp_path: Path, files: dict[str, str], said: str) -> None:
    root = node(tmp_path, **({"status": f"CapEff:\t{ALL_CAPABILITIES}\n"} | files))
    assert said in privileges.reason(root)


def test_a_node_that_shows_nothing_of_itself_still_gets_a_reason(tmp_path: Path) -> None:
    assert "CAP_BPF and CAP_PERFMON" in privileges.reason(str(tmp_path))
    assert "CAP_BPF" in privileges.reason(node(tmp_path, status="CapEff:\tnonsense\n"))


@needs_bpf
def test_an_unprivileged_process_is_told_what_it_lacks() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become nobody")
    program = (
        "import os, sys; sys.path[:0] = sys.argv[1:]\n"
        "import exhume.kernel.bpf.features as f\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "print(f.unavailable())\n"
        "try: f.HERE.test_run\n"
        "except f.BpfError as e: print('refused', e.errno)"
    )
    done = subprocess.run([sys.executable, "-c", program, *sys.path], capture_output=True, text=True, check=True, timeout=300)
    first, second = done.stdout.splitlines()
    assert first.startswith("loading a BPF program is not permitted: it takes CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN")
    assert "this process lacks CAP_BPF and CAP_PERFMON" in first
    assert second == "refused 1"


@needs_bpf
def test_this_kernel_is_found_usable_and_each_feature_answers() -> None:
    assert unavailable() == ""
    answers = {
        HERE.probe_read_kernel,
        HERE.bounded_loops,
        HERE.mmapable_arrays,
        HERE.test_run,
        HERE.batch_lookup,
    }
    assert answers <= {True, False}


def test_a_forced_feature_is_not_tried() -> None:
    assert Features(test_run=False).test_run is False
    assert Features(test_run=True).test_run is True
    assert Features(probe_read_kernel=False).read_helper == Helper.probe_read
    assert Features(probe_read_kernel=False).read_string_helper == Helper.probe_read_str
    assert Features(probe_read_kernel=True).read_helper == Helper.probe_read_kernel
    assert repr(Features(test_run=False)) == "Features(test_run=False)"


# Tracepoints


@needs_bpf
def test_tracefs_is_found_or_mounted_for_us_alone() -> None:
    mounts = Path("/proc/self/mountinfo").read_bytes()
    with Tracefs() as usual, Tracefs(mounts=()) as private:
        assert Path("/proc/self/mountinfo").read_bytes() == mounts
        found = private.tracepoint("sched", "sched_switch")
        assert found == usual.tracepoint("sched", "sched_switch")
        assert found.field("prev_comm").size == 16
        assert found.field("next_pid").signed
        assert private.tracepoint("cgroup", "cgroup_mkdir").field("path").data_loc
        with pytest.raises(TracefsError, match="no field nothing"):
            found.field("nothing")
        with pytest.raises(TracefsError, match="no tracepoint sched:nothing"):
            private.tracepoint("sched", "nothing")


def test_a_format_file_gives_number_and_fields() -> None:
    raw = (
        b"name: x\nID: 42\nformat:\n"
        b"\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n"
        b"\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n"
        b"\tfield:__data_loc char[] path;\toffset:24;\tsize:4;\tsigned:0;\n"
        b"\tfield:const char * name;\toffset:32;\tsize:8;\tsigned:1;\n"
        b'\nprint fmt: "%s"\n'
    )
    tracepoint = parse_format("a:x", raw)
    assert tracepoint.id == 42
    assert tracepoint.fields == {
        "common_type": Field(0, 2, False),
        "comm": Field(8, 16, False),
        "path": Field(24, 4, False, data_loc=True),
        "name": Field(32, 8, True),
    }


@given(st.one_of(st.binary(), st.binary().map(lambda raw: b"ID: 1\n\tfield:" + raw + b";\toffset:0;\tsize:2;\tsigned:0;\n")))
def test_a_garbled_format_is_unreadable_and_nothing_worse(raw: bytes) -> None:
    with contextlib.suppress(Unreadable):
        assert parse_format("a:b", raw).id < 1 << 32
