"""The map of the network devices: of the clouds' drivers as fixture trees, of this node, and of a namespace with a veth."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import Unreadable
from exhume.host.cpu_list import cpu_list, cpu_mask, cpu_text
from exhume.host.root import Root
from exhume.kernel.netdev import Napi, NapiQueue
from exhume.recording.recording import Node, Recording, labels
from exhume.sources import nic_files, nic_map
from exhume.sources.interrupts import Line, lines, queue_cores
from exhume.sources.nic import Nic
from exhume.sources.nic_map import Device, NicMap, Queue, device_names, devices_of, read_map
from exhume.sources.nic_queues import Port, serving
from exhume.sources.nic_rows import recorded_map
from tests.trees import Tree


def recording() -> Recording:
    return Recording(Node("node", "boot", "6.18", "v2", 2))


class Nodes(Tree):
    """A node with network devices and their interrupts."""

    def __init__(self, path: Path, cpus: int = 4) -> None:
        super().__init__(path)
        self.cpus = cpus
        self.lines: list[str] = []
        self._interrupts()

    def device(self, name: str, bus: str = "0000:3b:00.0", driver: str = "ena", rx: int = 1, tx: int = 1) -> Path:
        """Hardware. A bus of `pci/virtio` is a virtio device on a PCI device."""
        self.virtual(name, rx, tx)
        at = self.path / "sys/class/net" / name
        place = self.path / "sys/devices/pci0000:00" / bus
        place.mkdir(parents=True, exist_ok=True)
        module = self.path / "sys/bus/drivers" / driver
        (module / "module").mkdir(parents=True, exist_ok=True)
        (module / "module/version").write_text("2.11.0g\n")
        if not (place / "driver").is_symlink():
            (place / "driver").symlink_to(os.path.relpath(module, place))
        (at / "device").symlink_to(os.path.relpath(place, at))
        return place

    def virtual(self, name: str, rx: int = 1, tx: int = 1) -> None:
        for side, count in (("rx", rx), ("tx", tx)):
            for number in range(count):
                file = "rps_cpus" if side == "rx" else "xps_cpus"
                self.write(f"sys/class/net/{name}/queues/{side}-{number}/{file}", "0\n")
        self.write(f"sys/class/net/{name}/ifindex", f"{len(os.listdir(self.path / 'sys/class/net')) + 1}\n")
        self.write(f"sys/class/net/{name}/threaded", "0\n")

    def irq(self, number: int, name: str, core: int | None = None, affinity: str = "", msi: Path | None = None) -> None:
        """An interrupt that `core` has taken, and whose effective affinity is `affinity`."""
        counts = "".join(f" {900 if cpu == core else 0:10d}" for cpu in range(self.cpus))
        self.lines.append(f"{number:>4}:{counts}  IR-PCI-MSIX-0000:3b:00.0   {number}-edge      {name}\n")
        self._interrupts()
        if affinity:
            self.write(f"proc/irq/{number}/effective_affinity_list", affinity + "\n")
        if msi is not None:
            (msi / "msi_irqs").mkdir(exist_ok=True)
            (msi / "msi_irqs" / str(number)).write_text("msix\n")

    def _interrupts(self) -> None:
        self.write(
            "proc/interrupts", "     " + "".join(f"{f'CPU{cpu}':>11}" for cpu in range(self.cpus)) + "\n" + "".join(self.lines)
        )

    def read(self) -> list[Device]:
        return read_map(Root(str(self.path)))


def shape(device: Device) -> list[tuple[int | None, str, int | None, tuple[int, ...]]]:
    return [(queue.number, queue.side, queue.irq, queue.cores) for queue in device.queues]


@pytest.mark.parametrize(
    ("driver", "names"),
    [
        ("ena", ("eth0-Tx-Rx-0", "eth0-Tx-Rx-1")),
        ("ixgbe", ("eth0-TxRx-0", "eth0-TxRx-1")),
        ("bnxt_en", ("eth0-TxRx-0", "eth0-TxRx-1")),
        ("tg3", ("eth0-txrx-0", "eth0-txrx-1")),
        ("vmxnet3", ("eth0-rxtx-0", "eth0-rxtx-1")),
        ("i40e", ("i40e-eth0-TxRx-0", "i40e-eth0-TxRx-1")),
        ("ice", ("ice-eth0-TxRx-0", "ice-eth0-TxRx-1")),
        ("mlx5_core", ("mlx5_comp0@pci:0000:3b:00.0", "mlx5_comp1@pci:0000:3b:00.0")),
        ("mana", ("mana_q0@pci:0000:3b:00.0", "mana_q1@pci:0000:3b:00.0")),
        ("hns3", ("hns3-0000:3b:00.0-TxRx-0", "hns3-0000:3b:00.0-TxRx-1")),
    ],
)
@pytest.mark.parametrize("listed", [True, False])
def test_each_queue_has_its_interrupt_and_its_core(tmp_path: Path, driver: str, names: tuple[str, str], listed: bool) -> None:
    tree = Nodes(tmp_path)
    place = tree.device("eth0", driver=driver, rx=2, tx=2)
    tree.irq(40, f"{driver}-mgmnt@pci:0000:3b:00.0", core=3, affinity="3", msi=place if listed else None)
    tree.irq(39, "nvme0q1", core=3, affinity="3")
    for queue, name in enumerate(names):
        tree.irq(41 + queue, name, core=2 + queue, affinity=str(2 + queue), msi=place if listed else None)
    (eth0,) = tree.read()
    assert shape(eth0) == [(0, "both", 41, (2,)), (1, "both", 42, (3,))]
    assert (eth0.driver, eth0.driver_version, eth0.bus, eth0.pci) == (driver, "2.11.0g", "0000:3b:00.0", "0000:3b:00.0")


def test_virtio_has_an_interrupt_a_direction_and_its_node_is_that_of_the_pci_device(tmp_path: Path) -> None:
    tree = Nodes(tmp_path)
    place = tree.device("eth0", bus="0000:00:03.0/virtio2", driver="virtio_net").parent
    (place / "numa_node").write_text("1\n")
    for irq, name, core in ((37, "virtio2-config", 0), (38, "virtio2-input.0", 1), (39, "virtio2-output.0", 2)):
        tree.irq(irq, name, core, str(core), msi=place)
    tree.irq(50, "virtio22-input.0", 3, "3")
    (eth0,) = tree.read()
    assert shape(eth0) == [(0, "rx", 38, (1,)), (0, "tx", 39, (2,))]
    assert (eth0.bus, eth0.pci, eth0.numa_node) == ("virtio2", "0000:00:03.0", 1)


@pytest.mark.parametrize("name", ["gve-ntfy-blk{}@pci:0000:3b:00.0", "eth%d-ntfy-block.{}"])
def test_gve_has_the_receive_queues_in_the_second_half_of_its_blocks(tmp_path: Path, name: str) -> None:
    tree = Nodes(tmp_path)
    place = tree.device("ens4", driver="gve", rx=2, tx=2)
    for block in range(8):  # it has room for four queues a direction and uses two
        tree.irq(60 + block, name.format(block), msi=place, affinity=str(block % 4))
    tree.irq(68, "gve-mgmnt@pci:0000:3b:00.0", msi=place)
    (ens4,) = tree.read()
    assert shape(ens4) == [(0, "rx", 64, (0,)), (0, "tx", 60, (0,)), (1, "rx", 65, (1,)), (1, "tx", 61, (1,))]


def test_hyper_v_tells_cores_by_channel_and_names_the_function_behind(tmp_path: Path) -> None:
    tree = Nodes(tmp_path)
    place = tree.device("eth0", bus="f8615163-0000-1000-2000-00224800a1b2", driver="hv_netvsc", rx=2, tx=2)
    for channel, queue, cpu in ((14, 0, 0), (33, 1, 3)):
        (place / f"channels/{channel}").mkdir(parents=True)
        (place / f"channels/{channel}/subchannel_id").write_text(f"{queue}\n")
        (place / f"channels/{channel}/cpu").write_text(f"{cpu}\n")
    (tmp_path / "sys/class/net/eth0/lower_enP1s1").mkdir()
    (eth0,) = tree.read()
    assert shape(eth0) == [(0, "both", None, (0,)), (1, "both", None, (3,))]
    assert (eth0.lower, eth0.pci) == (("enP1s1",), "")
    assert device_names([eth0], 3) == ("eth0",)


def test_an_unknown_name_is_the_devices_whose_list_has_it(tmp_path: Path) -> None:
    tree = Nodes(tmp_path)
    place = tree.device("enp5s0", driver="strange", rx=2, tx=2)
    for irq, name in ((70, "strange-misc"), (71, "strange-3@0000:3b:00.0"), (72, "enp5s0-fp-1"), (73, "strange")):
        tree.irq(irq, name, core=1, msi=place)
    tree.irq(74, "stranger-5", core=1)
    (enp5s0,) = tree.read()
    assert shape(enp5s0) == [(None, "both", 73, (1,)), (1, "both", 72, (1,)), (3, "both", 71, (1,))]


def test_an_interrupt_with_the_name_of_the_device_serves_it_where_no_other_does(tmp_path: Path) -> None:
    tree = Nodes(tmp_path)
    place = tree.device("eth0", driver="ixgbe", rx=1, tx=1)
    tree.irq(80, "eth0", core=2, msi=place)  # ixgbe_msix_other
    (alone,) = tree.read()
    assert shape(alone) == [(None, "both", 80, (2,))]
    tree.irq(81, "eth0-TxRx-0", core=3, msi=place)
    (eth0,) = tree.read()
    assert shape(eth0) == [(0, "both", 81, (3,))]


def test_the_same_name_in_another_namespace_is_not_ours_and_a_former_name_is(tmp_path: Path) -> None:
    tree = Nodes(tmp_path)
    first, second = tree.device("eth0", "0000:3b:00.0"), tree.device("ens5", "0000:3c:00.0")
    tree.irq(41, "eth0-Tx-Rx-0", core=1, msi=first)
    tree.irq(42, "eth0-Tx-Rx-0", core=2)  # a virtual function that a pod has, as its eth0
    tree.irq(43, "eth7-Tx-Rx-0", core=3, msi=second)  # renamed after it had asked for interrupts
    ens5, eth0 = tree.read()
    assert shape(eth0) == [(0, "both", 41, (1,))]
    assert shape(ens5) == [(0, "both", 43, (3,))]


def test_ports_of_one_pci_device_share_its_interrupts_but_not_those_that_name_another(tmp_path: Path) -> None:
    tree = Nodes(tmp_path)
    place = tree.device("eth0", driver="mana")
    tree.device("eth1", driver="mana")
    tree.irq(41, "mana_q0@pci:0000:3b:00.0", core=1, msi=place)
    assert device_names(tree.read(), 1) == ("eth0", "eth1")
    tree.irq(42, "eth1-rx-0", core=2, msi=place)
    assert device_names(tree.read(), 2) == ("eth1",)


def test_of_several_allowed_cores_it_is_the_one_that_took_the_interrupts(tmp_path: Path) -> None:
    tree = Nodes(tmp_path)
    place = tree.device("eth0", rx=2, tx=2)
    tree.irq(41, "eth0-Tx-Rx-0", core=2, msi=place)
    tree.irq(42, "eth0-Tx-Rx-1", core=None, msi=place)
    tree.write("proc/irq/41/smp_affinity_list", "0-3\n")  # a kernel before effective_affinity_list
    tree.write("proc/irq/42/smp_affinity_list", "0-1\n")
    tree.write("proc/irq/42/effective_affinity_list", "\n")  # an interrupt that was never started
    (eth0,) = tree.read()
    assert [queue.cpus for queue in eth0.queues] == [(0, 1, 2, 3), (0, 1)]
    assert [queue.cores for queue in eth0.queues] == [(2,), (0, 1)]
    assert Queue(0, "rx", 41, (3,), busiest=2).cores == (3,), "it was moved since"


def test_a_core_is_named_by_one_device_by_several_or_not_at_all(tmp_path: Path) -> None:
    tree = Nodes(tmp_path, cpus=40)
    first, second = tree.device("eth0", "0000:3b:00.0"), tree.device("eth1", "0000:3c:00.0")
    tree.irq(41, "eth0-Tx-Rx-0", 1, "1", first)
    tree.irq(42, "eth1-Tx-Rx-0", 2, "2", second)
    tree.irq(43, "eth0-Tx-Rx-1", 2, "2", first)
    tree.write("sys/class/net/eth1/queues/rx-0/rps_cpus", "00000080,00000008\n")
    devices = tree.read()
    assert device_names(devices, 1) == ("eth0",)
    assert device_names(devices, 0) == ()
    assert [(found.device.name, found.queue.irq, found.how) for found in devices_of(devices, 3)] == [("eth1", 42, "rps")]
    assert device_names(devices, 39) == ("eth1",)
    assert device_names(devices, 2) == ("eth1",), "the queue 1 that eth0 does not have is not served"


def test_a_device_polled_by_threads_is_not_due_where_its_interrupts_come(tmp_path: Path) -> None:
    tree = Nodes(tmp_path)
    place = tree.device("eth0")
    tree.irq(41, "eth0-Tx-Rx-0", 1, "1", place)
    tree.write("sys/class/net/eth0/threaded", "1\n")
    tree.write("proc/2/task/2/children", "3 977 978 \n")
    for pid, name in ((3, "kworker/0:0"), (977, "napi/eth0-8193"), (978, "napi/eth1-8194")):
        tree.write(f"proc/{pid}/comm", name + "\n")
    (eth0,) = tree.read()
    assert eth0.threaded is True
    assert eth0.tasks == (nic_map.Task(977, "napi/eth0-8193", 8193),)
    assert eth0.queues[0].task == eth0.tasks[0]
    assert [found.how for found in devices_of([eth0], 1)] == ["thread"]
    assert device_names([eth0], 1) == ()


def test_a_thread_with_a_name_cut_short_is_of_the_only_device_it_can_be(tmp_path: Path) -> None:
    tree = Nodes(tmp_path)
    for device in ("enp129s0f0np0", "enp129s0f0np1", "ens1f0np0"):
        tree.virtual(device)
        tree.write(f"sys/class/net/{device}/threaded", "1\n")
    for pid, name in ((10, "napi/enp129s0f0"), (11, "napi/ens1f0np0-"), (12, "napi/other")):
        tree.write(f"proc/{pid}/comm", name + "\n")
    tasks = {device.name: [task.pid for task in device.tasks] for device in tree.read()}
    assert tasks == {"enp129s0f0np0": [], "enp129s0f0np1": [], "ens1f0np0": [11]}


def test_hardware_comes_first_then_bonds_then_some_of_the_virtual_ones(tmp_path: Path) -> None:
    tree = Nodes(tmp_path)
    for number in range(40):
        tree.virtual(f"a{number:02}")
    tree.virtual("bond0")
    tree.write("sys/class/net/bond0/bonding/slaves", "eth0\n")
    (tmp_path / "sys/class/net/bond0/lower_eth0").mkdir()
    (tmp_path / "sys/class/net/bonding_masters").write_text("bond0\n")
    tree.device("eth0")
    read = NicMap(Root(str(tmp_path)))
    devices = read.read()
    assert [(device.name, device.kind) for device in devices[:3]] == [
        ("eth0", "hardware"),
        ("bond0", "bond"),
        ("a00", "virtual"),
    ]
    assert len(devices) == 2 + nic_map.MOST_VIRTUAL
    assert read.note == "8 devices more were not read"
    assert devices[1].lower == ("eth0",)


def test_no_numa_node_is_none_and_queues_are_counted(tmp_path: Path) -> None:
    tree = Nodes(tmp_path)
    place = tree.device("eth0", rx=3, tx=2)
    (place / "numa_node").write_text("-1\n")
    tree.write("sys/class/net/eth0/queues/tx-1/xps_cpus", "c\n")
    (eth0,) = tree.read()
    assert (eth0.numa_node, eth0.queues_rx, eth0.queues_tx, eth0.xps) == (None, 3, 2, ((1, (2, 3)),))


def test_a_lock_that_is_held_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Nodes(tmp_path)
    place = tree.device("eth0")
    tree.irq(41, "eth0-Tx-Rx-0", 1, "1", place)
    done = threading.Event()
    really = nic_files.threaded

    def threaded(root: Root, device: str) -> bool | None:
        done.wait()
        return really(root, device)

    monkeypatch.setattr(nic_files, "threaded", threaded)
    monkeypatch.setattr(nic_map, "PATIENCE_S", 0.01)
    read = NicMap(Root(str(tmp_path)))
    try:
        (eth0,) = read.read()
        assert (shape(eth0), eth0.threaded) == ([(0, "both", 41, (1,))], None)
        assert "did not answer within 10 ms" in read.note
        read.read()
        assert read.note == "the drivers have not answered since they were last asked"
    finally:
        done.set()
    assert read._asking is not None
    read._asking.join()
    monkeypatch.setattr(nic_map, "PATIENCE_S", 60.0)
    assert read.read()[0].threaded is False
    assert read.note == ""


def test_no_sys_at_all_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="/sys/class/net is not there"):
        read_map(Root(str(tmp_path)))


def test_a_hostile_device_name_is_carried_as_data(tmp_path: Path) -> None:
    tree = Nodes(tmp_path)
    tree.virtual(os.fsdecode(b"\x1b[31m\xff"))
    (device,) = tree.read()
    assert (device.name, device.threaded, device.queues_rx) == ("\x1b[31m\\xff", False, 1)


def test_virtio_with_one_interrupt_for_all_queues(tmp_path: Path) -> None:
    tree = Nodes(tmp_path)
    place = tree.device("eth0", bus="0000:00:03.0/virtio2", driver="virtio_net").parent
    tree.irq(37, "virtio2-config", 0, "0", msi=place)
    tree.irq(38, "virtio2-virtqueues", 1, "1", msi=place)
    (eth0,) = tree.read()
    assert shape(eth0) == [(None, "both", 38, (1,))]


NAPIS = [Napi(4, 8193, 61, 977, None), Napi(4, 8194, 62, 978, None), Napi(5, 9000, 61, 979, None)]
OF_QUEUES = [NapiQueue(4, side, number, 8193 + number) for number in range(2) for side in ("rx", "tx")]


@pytest.mark.parametrize("named", [True, False])
def test_the_kernel_itself_tells_the_thread_of_a_queue_and_the_queue_of_an_interrupt(tmp_path: Path, named: bool) -> None:
    tree = Tree(tmp_path)
    for irq in (61, 62):
        tree.write(f"proc/irq/{irq}/effective_affinity_list", f"{irq - 60}\n")
    tree.write("proc/977/comm", "napi/eth0-8193\n")
    queues = (Queue(0, "both", 61, (1,), None), Queue(1, "both", 62, (2,), None))
    told = nic_map._Told(threaded={"eth0": True}, napis=NAPIS, queues=OF_QUEUES)
    device = Device("eth0", "hardware", ifindex=4, queues=queues if named else ())
    eth0 = nic_map._complete(Root(str(tmp_path)), device, told, ())
    assert shape(eth0) == [(0, "both", 61, (1,)), (1, "both", 62, (2,))]
    assert eth0.tasks == (nic_map.Task(977, "napi/eth0-8193", 8193), nic_map.Task(978, "", 8194))
    assert tuple(queue.task for queue in eth0.queues) == eth0.tasks


def test_a_thread_that_stayed_behind_does_not_poll(tmp_path: Path) -> None:
    device = Device("eth0", "hardware", ifindex=4, queues=(Queue(0, "both", 61, (1,), None),))
    before = nic_map._Told(threaded={"eth0": False}, napis=NAPIS, queues=OF_QUEUES)
    assert nic_map._complete(Root(str(tmp_path)), device, before, ()).tasks == ()
    one = nic_map._Told(threaded={"eth0": False}, napis=[Napi(4, 8193, 61, 977, True), Napi(4, 8194, 62, 978, False)])
    assert [task.pid for task in nic_map._complete(Root(str(tmp_path)), device, one, ()).tasks] == [977], "set for one NAPI"


# --- in a recording


def rows_of(kept: Recording, name: str) -> list[tuple[int, int, dict[str, str]]]:
    return [(row["time"], row["value"], dict(row["labels"])) for row in kept["counters"].rows() if row["name"] == name]


def test_the_reader_writes_the_map_once_and_again_when_it_changes(tmp_path: Path) -> None:
    tree = Nodes(tmp_path)
    place = tree.device("eth0", rx=2, tx=2)
    (place / "numa_node").write_text("1\n")
    tree.irq(41, "eth0-Tx-Rx-0", 1, "1", place)
    kept, reader = recording(), Nic(Root(str(tmp_path)))
    reader.read(kept, 1)
    queue = {"device": "eth0", "queue": "0", "side": "both", "irq": "41"}
    assert rows_of(kept, "nic_queue") == [(1, 1, queue)]
    assert rows_of(kept, "nic_numa_node") == [(1, 1, {"device": "eth0"})]
    assert rows_of(kept, "nic_threaded") == [(1, 0, {"device": "eth0"})]
    rows = len(kept["counters"])
    reader.read(kept, 2)
    assert len(kept["counters"]) == rows
    tree.irq(41, "", affinity="3")  # irqbalance moves it
    tree.lines.pop()
    tree.write("sys/class/net/eth0/queues/rx-0/rps_cpus", "c\n")
    reader.read(kept, 3)
    tree.lines.clear()  # the driver is reset, and has other interrupts after it
    tree.irq(52, "eth0-Tx-Rx-0", 2, "2", place)
    tree.write("sys/class/net/eth0/queues/rx-0/rps_cpus", "0\n")
    reader.read(kept, 4)
    assert rows_of(kept, "nic_queue") == [(1, 1, queue), (3, 3, queue), (4, -1, queue), (4, 2, {**queue, "irq": "52"})]
    rps = {"device": "eth0", "queue": "0", "cores": "2-3"}
    assert rows_of(kept, "nic_rps") == [(3, 1, rps), (4, 0, rps)]
    for at, core in ((1, 1), (2, 1), (3, 3), (4, 2), (None, 2)):
        (device,) = recorded_map(kept, at)
        assert (device.name, device.driver, device.numa_node, device.threaded) == ("eth0", "ena", 1, False)
        assert [found.how for found in devices_of([device], core)][:1] == ["interrupt"], at
    assert device_names(recorded_map(kept, 3), 2) == ("eth0",), "by RPS"
    assert recorded_map(kept, 0) == []


def test_what_does_not_change_is_said_again_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Nodes(tmp_path)
    tree.irq(41, "eth0-Tx-Rx-0", 1, "1", tree.device("eth0"))
    monkeypatch.setattr("exhume.sources.nic.REMIND_NS", 100)
    kept, reader = recording(), Nic(Root(str(tmp_path)))
    for time in (1, 50, 101, 150):
        reader.read(kept, time)
    for name in ("nic_driver", "nic_queue", "nic_threaded"):
        assert [row[0] for row in rows_of(kept, name)] == [1, 101]


def test_a_queue_whose_interrupt_does_not_name_it_has_its_core_by_the_map(tmp_path: Path) -> None:
    kept = recording()
    kept.count(1, "nic_driver", 1, labels(device="ens4", driver="gve", version="1.3", bus="0000:00:04.0"))
    kept.count(1, "nic_queue", 0, labels(device="ens4", queue=5, side="tx", irq=65))
    kept.count(1, "nic_queue", 0, labels(device="ens4", queue=5, side="rx", irq=81))
    kept.count(1, "nic_queue", 7, labels(device="eth0", queue=1, side="both", irq=""))
    kept.count(1, "nic_queue", -1, labels(device="eth9", queue=1, side="both", irq=66))
    for irq, cpu in ((65, 3), (81, 4), (66, 5)):
        kept.count(1, "interrupts", 500, labels(irq=irq, cpu=cpu, device=f"gve-ntfy-blk{irq}@pci:0000:00:04.0"))
    assert queue_cores(kept) == {("ens4", 5): 3, ("eth0", 1): 7}
    assert queue_cores(kept, "rx") == {("ens4", 5): 4, ("eth0", 1): 7}


# --- this node


def test_the_interrupts_of_this_node_go_where_the_kernel_says() -> None:
    hardware = [device for device in read_map(Root()) if device.kind == "hardware"]
    queues = [(device, queue) for device in hardware for queue in device.queues if queue.irq is not None]
    if not queues:
        pytest.skip("no network device with interrupts here")
    text = Path("/proc/interrupts").read_text()
    for device, queue in queues:
        line = next(line for line in text.splitlines() if line.strip().startswith(f"{queue.irq}:"))
        assert device.name in line or device.bus in line or device.pci in line
        listed = Path(f"/proc/irq/{queue.irq}/effective_affinity_list")
        assert not listed.exists() or cpu_list(listed.read_bytes()) == queue.cpus
        assert device in [found.device for found in devices_of(hardware, queue.cores[0])]
        assert os.path.basename(os.path.realpath(f"/sys/class/net/{device.name}/device/driver")) == device.driver
        assert device.netns == os.stat("/proc/self/ns/net").st_ino


@pytest.fixture
def namespace() -> Iterator[str]:
    """A network namespace with a pair of veths, exhume-v0 and exhume-v1, both up; v1 with NAPI."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("ethtool") is None:
        pytest.skip("needs root, iproute2 and ethtool to make a network namespace")
    name = f"exhume-test-map-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"no network namespace can be made here: {made.stderr.strip()}")
    try:
        for command in (
            "ip link add exhume-v0 type veth peer name exhume-v1",
            "ip link set exhume-v0 up",
            "ethtool -K exhume-v1 gro on",
            "ip link set exhume-v1 up",
        ):
            done = subprocess.run(["ip", "netns", "exec", name, *command.split()], capture_output=True, text=True)
            if done.returncode != 0:
                pytest.skip(f"no veth can be made here: {done.stderr.strip()}")
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


_PRINT_MAP = """
import json, sys
from dataclasses import asdict
from exhume.sources.nic_map import read_map
from exhume.host.root import Root
open("/sys/class/net/exhume-v1/threaded", "w").write(sys.argv[1])
open("/sys/class/net/exhume-v1/queues/rx-0/rps_cpus", "w").write("1")
print(json.dumps([asdict(device) for device in read_map(Root())]))
"""


@pytest.mark.parametrize("threaded", ["1", "0"])
def test_a_veth_in_a_namespace_of_its_own_has_its_thread(namespace: str, threaded: str) -> None:
    command = ["ip", "netns", "exec", namespace, sys.executable, "-c", _PRINT_MAP, threaded]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    if "threaded" in done.stderr and "Error" in done.stderr:
        pytest.skip(f"no threaded NAPI here: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    devices = {device["name"]: device for device in json.loads(done.stdout)}
    v0, v1 = devices["exhume-v0"], devices["exhume-v1"]
    assert v1["netns"] == os.stat(f"/run/netns/{namespace}").st_ino
    assert (v1["kind"], v1["driver"], v1["threaded"], v0["threaded"]) == ("virtual", "veth", threaded == "1", False)
    assert (v1["rps"], v0["rps"]) == ([[0, [0]]], [])
    assert (bool(v1["tasks"]), v0["tasks"]) == (threaded == "1", [])
    for task in v1["tasks"]:
        assert task["name"].startswith("napi/exhume-v1"[:15])
        assert Path(f"/proc/{task['pid']}/comm").read_text().strip() == task["name"]


# --- garbage


@given(st.binary(max_size=60) | st.text("0123456789abcdef,\n", max_size=60).map(str.encode))
def test_garbage_is_no_mask(raw: bytes) -> None:
    cpus = cpu_mask(raw)
    assert list(cpus) == sorted(set(cpus))
    assert all(0 <= cpu < 65_536 for cpu in cpus)


@given(st.sets(st.integers(0, 300)))
def test_masks_and_lists_are_read_back(cpus: set[int]) -> None:
    bits = sum(1 << cpu for cpu in cpus)
    words = [f"{bits >> shift & 0xFFFFFFFF:08x}" for shift in range(288, -1, -32)]
    assert cpu_mask(",".join(words).encode() + b"\n") == tuple(sorted(cpus))
    assert cpu_list(cpu_text(tuple(sorted(cpus))).encode()) == tuple(sorted(cpus))


@given(st.binary(max_size=300), st.booleans())
def test_garbage_in_proc_interrupts_is_passed_over(raw: bytes, header: bool) -> None:
    for line in lines((b"  CPU0 CPU1\n" if header else b"") + raw, lambda _irq, _rest: True):
        assert line.irq >= 0
        assert line.busiest in (None, 0, 1) or not header


names = st.sampled_from(["eth0-Tx-Rx-5", "gve-ntfy-blk3@pci:x", "eth0", "a-ntfy-block.77", "virtio1-input.0", "-tx-1"])


@given(
    st.lists(st.tuples(st.integers(0, 9), st.lists(st.text(max_size=30) | names, max_size=3)), max_size=12), st.integers(0, 4)
)
def test_any_names_of_interrupts_give_queues_that_exist(found: list[tuple[int, list[str]]], queues: int) -> None:
    port = Port("eth0", "virtio1", "x", frozenset(range(5)) if queues % 2 else frozenset(), queues, queues)
    for serves in serving(port, [Line(irq, tuple(names), None) for irq, names in found]):
        assert serves.number is None or serves.number >= 0
        assert not port.irqs or serves.line.irq in port.irqs


_FILES = (
    "sys/class/net/eth0/ifindex sys/class/net/eth0/threaded sys/class/net/eth0/queues/rx-0/rps_cpus proc/interrupts "
    "sys/class/net/eth0/queues/tx-0/xps_cpus proc/irq/41/effective_affinity_list proc/irq/41/smp_affinity_list "
    "sys/devices/pci0000:00/0000:3b:00.0/numa_node proc/2/task/2/children proc/977/comm"
).split()


@given(st.sampled_from(_FILES), st.binary(max_size=80))
def test_garbage_in_any_file_is_passed_over(tmp_path_factory: pytest.TempPathFactory, file: str, raw: bytes) -> None:
    tree = Nodes(tmp_path_factory.mktemp("node"))
    place = tree.device("eth0")
    tree.irq(41, "eth0-Tx-Rx-0", 1, "1", place)
    tree.write("sys/class/net/eth0/threaded", "1\n")
    tree.write(file, raw)
    (eth0,) = tree.read()
    assert (eth0.name, eth0.driver) == ("eth0", "ena")
    kept = recording()
    Nic(Root(str(tree.path))).read(kept, 1)
    assert [device.name for device in recorded_map(kept)] == ["eth0"]


text = st.text(max_size=6) | st.sampled_from(["0", "1", "rx", "both", "0-3", "eth0"])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["nic_queue", "nic_rps", "nic_driver", "nic_numa_node", "nic_threaded", "interrupts", "nic_stat"]),
            st.dictionaries(st.sampled_from("device queue side irq cores cpu driver version bus stat".split()), text),
            st.integers(-3, 1 << 62),
        )
    )
)
def test_a_strange_recording_gives_a_map(found: list[tuple[str, dict[str, str], int]]) -> None:
    kept = recording()
    for time, (name, at, value) in enumerate(found):
        kept.count(time, name, value, labels(**at))
    devices = recorded_map(kept)
    assert len({device.name for device in devices}) == len(devices)
    assert isinstance(queue_cores(kept), dict)
