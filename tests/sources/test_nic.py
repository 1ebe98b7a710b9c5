"""Network devices of a fixture tree, of this node, and of another network namespace reached through its /proc."""

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.kernel.ethtool import Driver, Ethtool
from exhume.recording.recording import Node, Recording, labels
from exhume.recording.source_state import sentences
from exhume.sources import nic
from exhume.sources.nic import Nic

# `ethtool -S` of an ENA 2.10 device, shortened to one queue.
ENA = """total_resets reset_fail tx_timeout wd_expired admin_q_pause missing_intr suspected_poll_starvation missing_tx_cmpl
os_netdev_wd suspend resume interface_up interface_down bw_in_allowance_exceeded bw_out_allowance_exceeded
pps_allowance_exceeded conntrack_allowance_exceeded linklocal_allowance_exceeded queue_5_tx_queue_stop
queue_5_tx_missed_tx queue_5_tx_napi_comp queue_5_rx_empty_rx_ring ena_admin_q_aborted_cmd ena_admin_q_no_completion""".split()


def recording() -> Recording:
    return Recording(Node("node", "boot", "6.18", "v2", 2))


def device(tree: Path, name: str, kind: str = "hardware", **counts: int) -> None:
    """A network device as /sys shows it."""
    at = tree / "sys/class/net" / name
    (at / "statistics").mkdir(parents=True)
    for counter in ("rx_packets", "tx_packets", "rx_dropped", "tx_dropped", "rx_errors", "tx_errors", "rx_missed_errors"):
        (at / "statistics" / counter).write_text(f"{counts.get(counter, 0)}\n")
    (at / "carrier_changes").write_text(f"{counts.get('carrier_changes', 2)}\n")
    if kind == "hardware":
        pci = tree / f"sys/devices/pci0000:20/0000:20:03.{len(os.listdir(tree / 'sys/class/net')) - 1}"
        pci.mkdir(parents=True)
        driver = tree / "sys/bus/pci/drivers/ena"
        (driver / "module").mkdir(parents=True, exist_ok=True)
        (driver / "module/version").write_text("2.11.0g\n")
        (pci / "driver").symlink_to(os.path.relpath(driver, pci))
        (at / "device").symlink_to(os.path.relpath(pci, at))
    if kind == "bond":
        (at / "bonding").mkdir()


def values(kept: Recording, name: str) -> dict[str, int]:
    return {dict(at)["device"]: series.last for at, series in kept.counters(name).items()}


def test_a_fixture_tree_is_read_from_sys_alone(tmp_path: Path) -> None:
    device(tmp_path, "eth0", rx_packets=7, tx_dropped=3, carrier_changes=5)
    kept = recording()
    note = sentences(Nic(Root(str(tmp_path))).read(kept, 1))
    assert note == "ethtool was not asked: no live node's /proc below this root"
    assert values(kept, "nic_rx_packets") == {"eth0": 7}
    assert values(kept, "nic_tx_dropped") == {"eth0": 3}
    assert values(kept, "nic_rx_missed_errors") == {"eth0": 0}
    assert values(kept, "nic_carrier_changes") == {"eth0": 5}
    at = labels(device="eth0", driver="ena", version="2.11.0g", bus="0000:20:03.0")
    assert kept.counter("nic_driver", at) is not None
    assert kept.counters("nic_stat") == {}


def test_hardware_and_bonds_are_read_and_no_virtual_device(tmp_path: Path) -> None:
    device(tmp_path, "eth0")
    device(tmp_path, "bond0", "bond")
    for name in ("lo", "veth0", "cni0"):
        device(tmp_path, name, "virtual")
    (tmp_path / "sys/class/net/bonding_masters").write_text("bond0\n")
    kept = recording()
    Nic(Root(str(tmp_path))).read(kept, 1)
    assert set(values(kept, "nic_rx_packets")) == {"eth0", "bond0"}


def test_a_node_with_very_many_devices_is_read_in_part_and_says_so(tmp_path: Path) -> None:
    for number in range(70):
        device(tmp_path, f"eth{number}")
    kept = recording()
    assert "64 of 70 devices were read" in sentences(Nic(Root(str(tmp_path))).read(kept, 1))
    assert len(values(kept, "nic_rx_packets")) == 64


def test_only_what_changed_is_added(tmp_path: Path) -> None:
    device(tmp_path, "eth0", rx_packets=7)
    kept = recording()
    reader = Nic(Root(str(tmp_path)))
    reader.read(kept, 1)
    rows = len(kept["counters"])
    (tmp_path / "sys/class/net/eth0/statistics/rx_packets").write_text("9\n")
    reader.read(kept, 2)
    assert [(row["name"], row["value"]) for row in kept["counters"].rows()][rows:] == [("nic_rx_packets", 9)]


def test_no_hardware_is_said_to_be_unreadable_not_healthy(tmp_path: Path) -> None:
    device(tmp_path, "lo", "virtual")
    with pytest.raises(Unreadable, match="no device with hardware"):
        Nic(Root(str(tmp_path))).read(recording(), 1)


def test_no_sys_at_all_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="/sys/class/net is not there"):
        Nic(Root(str(tmp_path))).read(recording(), 1)


def test_a_hostile_device_name_is_carried_as_data(tmp_path: Path) -> None:
    device(tmp_path, os.fsdecode(b"\x1b[31m\xff"))
    kept = recording()
    Nic(Root(str(tmp_path))).read(kept, 1)
    assert set(values(kept, "nic_rx_packets")) == {"\x1b[31m\\xff"}


@given(st.binary(max_size=40))
def test_garbage_in_a_counter_is_passed_over(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    tree = tmp_path_factory.mktemp("node")
    device(tree, "eth0", rx_packets=7)
    (tree / "sys/class/net/eth0/statistics/tx_packets").write_bytes(raw)
    (tree / "sys/bus/pci/drivers/ena/module/version").write_bytes(raw)
    kept = recording()
    Nic(Root(str(tree))).read(kept, 1)
    assert values(kept, "nic_rx_packets") == {"eth0": 7}
    assert all(0 <= value < 1 << 63 for value in kept["counters"].ints("value"))


def test_this_node_has_its_driver_and_its_packets() -> None:
    kept = recording()
    try:
        Nic(Root()).read(kept, 1)
    except Unreadable as error:
        pytest.skip(str(error))
    found = {of["device"]: of for of in map(dict, kept.counters("nic_driver"))}
    assert found
    for name, of in found.items():
        assert os.path.basename(os.path.realpath(f"/sys/class/net/{name}/device/driver")) == of["driver"]
        packets = int(Path(f"/sys/class/net/{name}/statistics/rx_packets").read_text())
        assert 0 <= values(kept, "nic_rx_packets")[name] <= packets


def test_a_virtio_device_of_this_node_tells_its_timeouts() -> None:
    kept = recording()
    try:
        Nic(Root()).read(kept, 1)
    except Unreadable as error:
        pytest.skip(str(error))
    virtio = [dict(at)["device"] for at in kept.counters("nic_driver") if dict(at)["driver"] == "virtio_net"]
    if not virtio:
        pytest.skip("no virtio network device here")
    stats = {dict(at)["stat"] for at in kept.counters("nic_stat")}
    if not stats:
        pytest.skip("this kernel's virtio_net tells neither drops nor timeouts")
    assert any(stat.endswith("drops") for stat in stats)
    assert not any("kicks" in stat or "packets" in stat for stat in stats)


class Drivers:
    """Stands for ethtool where the hardware is not here."""

    def __init__(self, statistics: dict[str, int] | OSError, wait: threading.Event | None = None) -> None:
        self.told, self._wait = statistics, wait

    def driver(self, _device: str) -> Driver:
        if self._wait is not None:
            self._wait.wait()
        return Driver("ena", "2.11.0g", "0000:20:03.0")

    def statistics(self, _device: str) -> dict[str, int]:
        if isinstance(self.told, OSError):
            raise self.told
        return self.told


def with_drivers(monkeypatch: pytest.MonkeyPatch, tree: Path, drivers: Drivers) -> Nic:
    (tree / "proc/1/ns").mkdir(parents=True)
    (tree / "proc/1/ns/net").symlink_to("/proc/self/ns/net")
    monkeypatch.setattr(nic, "Ethtool", lambda _namespace: drivers)
    return Nic(Root(str(tree)))


def test_what_ena_tells_of_stalls_is_kept_and_its_traffic_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device(tmp_path, "eth0")
    traffic = {"queue_5_tx_cnt": 1, "queue_5_rx_bytes": 2, "ena_srd_mode": 0, "rx_packets": 5}
    drivers = Drivers(dict.fromkeys(ENA, 0) | traffic)
    reader = with_drivers(monkeypatch, tmp_path, drivers)
    kept = recording()
    assert sentences(reader.read(kept, 1)) == ""
    assert {dict(at)["stat"] for at in kept.counters("nic_stat")} == set(ENA)
    drivers.told = dict.fromkeys(ENA, 0) | {"total_resets": 1, "suspected_poll_starvation": 1}
    reader.read(kept, 2)
    grown = {dict(at)["stat"]: series.delta for at, series in kept.counters("nic_stat").items() if series.delta}
    assert grown == {"total_resets": 1, "suspected_poll_starvation": 1}


@pytest.mark.parametrize(
    ("stat", "kept"),
    [
        ("tx_queue_stopped", True),
        ("tx11_stopped", True),
        ("rx_out_of_buffer", True),
        ("tx_timeout_count", True),
        ("rx_no_buffer_count", True),
        ("tx_timeout.nic", True),
        ("tx_queue_0_tx_timeouts", True),
        ("tx0_tx_timeouts", True),
        ("tx_stop[3]", True),
        ("tx timeout count", True),
        ("tx_total_resets", True),
        ("tx11_packets", False),
        ("queue_0_rx_csum_good", False),
        ("tx_timeouts\n", False),
    ],
)
def test_the_table_keeps_what_says_that_a_queue_stalled(stat: str, kept: bool) -> None:
    assert bool(nic._IS_TELLING(stat)) is kept


def test_a_value_beyond_63_bits_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device(tmp_path, "eth0")
    kept = recording()
    with_drivers(monkeypatch, tmp_path, Drivers({"tx_timeout": (1 << 64) - 1, "wd_expired": 4})).read(kept, 1)
    assert {dict(at)["stat"]: series.last for at, series in kept.counters("nic_stat").items()} == {"wd_expired": 4}


def test_a_device_that_refuses_is_named_in_the_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device(tmp_path, "eth0", rx_packets=7)
    kept = recording()
    note = sentences(with_drivers(monkeypatch, tmp_path, Drivers(OSError(19, "No such device"))).read(kept, 1))
    assert note == "eth0: ethtool says No such device"
    assert values(kept, "nic_rx_packets") == {"eth0": 7}


def test_a_driver_that_holds_the_lock_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device(tmp_path, "eth0", rx_packets=7)
    monkeypatch.setattr(nic, "PATIENCE_S", 0.01)
    done = threading.Event()
    reader = with_drivers(monkeypatch, tmp_path, Drivers({"tx_timeout": 1}, done))
    kept = recording()
    try:
        assert "eth0 did not answer ethtool within 10 ms" in sentences(reader.read(kept, 1))
        assert values(kept, "nic_rx_packets") == {"eth0": 7}
        assert sentences(reader.read(kept, 2)) == "ethtool has not answered since it was last asked"
    finally:
        done.set()
    assert reader._asking is not None
    reader._asking.join()
    monkeypatch.setattr(nic, "PATIENCE_S", 60.0)
    assert sentences(reader.read(kept, 3)) == ""
    assert kept.counter("nic_stat", labels(device="eth0", stat="tx_timeout")) is not None


@pytest.fixture
def namespace() -> Iterator[str]:
    """The path of a network namespace with a pair of veths, exhume-v0 and exhume-v1."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2 to make a network namespace")
    name = f"exhume-nic-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"no network namespace can be made here: {made.stderr.strip()}")
    try:
        veth = ["ip", "-n", name, "link", "add", "exhume-v0", "type", "veth", "peer", "name", "exhume-v1"]
        made = subprocess.run(veth, capture_output=True, text=True)
        if made.returncode != 0:
            pytest.skip(f"no veth can be made here: {made.stderr.strip()}")
        yield f"/run/netns/{name}"
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


def test_a_live_node_below_another_root_is_asked_in_its_own_network_namespace(tmp_path: Path, namespace: str) -> None:
    device(tmp_path, "exhume-v0", rx_packets=7)
    (tmp_path / "proc/1/ns").mkdir(parents=True)
    (tmp_path / "proc/1/ns/net").symlink_to(namespace)
    kept = recording()
    assert sentences(Nic(Root(str(tmp_path))).read(kept, 1)) == ""
    (driver,) = map(dict, kept.counters("nic_driver"))
    assert driver["driver"] == "veth", "as its driver says, not as the fixture's /sys does"
    with Ethtool(namespace) as asked:
        told = set(asked.statistics("exhume-v0"))
    assert {dict(at)["stat"] for at in kept.counters("nic_stat")} == {
        stat for stat in told if stat.endswith("drops") and "xdp" not in stat
    }


def test_a_namespace_that_may_not_be_entered_is_said_and_sys_is_still_read(tmp_path: Path) -> None:
    device(tmp_path, "eth0", rx_packets=7)
    (tmp_path / "proc/1/ns").mkdir(parents=True)
    (tmp_path / "proc/1/ns/net").write_bytes(b"")
    kept = recording()
    assert "no way into the node's network namespace" in sentences(Nic(Root(str(tmp_path))).read(kept, 1))
    assert values(kept, "nic_rx_packets") == {"eth0": 7}


def test_a_container_of_its_own_network_says_that_it_sees_only_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device(tmp_path, "eth0")
    root = Root(str(tmp_path))
    root.own = True
    links = {"/proc/self/ns/net": "net:[4026532001]", "/proc/1/ns/net": "net:[4026531833]"}
    really = os.readlink
    monkeypatch.setattr(os, "readlink", lambda path: links.get(path) or really(path))
    assert "sees this container's devices only" in sentences(Nic(root).read(recording(), 1))
    links["/proc/self/ns/net"] = links["/proc/1/ns/net"]
    assert "container" not in sentences(Nic(root).read(recording(), 1))
