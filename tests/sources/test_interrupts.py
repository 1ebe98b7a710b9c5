"""/proc/interrupts of several machines, the queues behind the names, and this node's own interrupts."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.host.cpu_list import cpu_list
from exhume.host.root import Root
from exhume.recording.recording import Node, Recording, labels
from exhume.recording.source_state import sentences
from exhume.sources.interrupts import Interrupts, actions, queue_cores, queue_of

MSI = "PCI-MSI 524288-edge      "


def recording() -> Recording:
    return Recording(Node("node", "boot", "6.18", "v2", 2))


def interrupts(tmp_path: Path, cpus: list[int], *rows: tuple[str, list[int], str]) -> Root:
    """As show_interrupts() prints it."""
    text = " " * 11 + "".join(f"CPU{cpu:<8d}" for cpu in cpus) + "\n"
    for name, counts, rest in rows:
        text += f"{name:>4}:" + "".join(f" {count:10d}" for count in counts) + f"  {rest}\n"
    (tmp_path / "proc").mkdir(exist_ok=True)
    (tmp_path / "proc/interrupts").write_text(text)
    return Root(str(tmp_path))


def test_this_node_has_the_counts_that_the_file_has() -> None:
    before = Path("/proc/interrupts").read_text()
    kept = recording()
    assert sentences(Interrupts(Root()).read(kept, 1)) == ""
    after = Path("/proc/interrupts").read_text()
    cpus = [word[3:] for word in before.split("\n")[0].split()]
    checked = 0
    for early, late in zip(before.splitlines()[1:], after.splitlines()[1:], strict=True):
        name = early.split(":")[0].strip()
        counts = zip(cpus, early.split(":")[1].split(), late.split(":")[1].split(), strict=False)
        for cpu, low, high in counts if name not in ("ERR", "MIS") else ():
            found = [s.last for at, s in kept.counters("interrupts").items() if {("irq", name), ("cpu", cpu)} <= set(at)]
            assert int(low) <= (found[0] if found else 0) <= int(high), (name, cpu)
            checked += 1
    assert checked >= len(cpus)


def test_a_cell_is_an_interrupt_a_core_and_a_device(tmp_path: Path) -> None:
    cpus = [core for core in range(96) if core != 7]
    counts = [1000 if core == 39 else 0 for core in cpus]
    root = interrupts(
        tmp_path, cpus, ("41", counts, MSI + "eth0-Tx-Rx-5"), ("LOC", [3] * 95, " Local timer interrupts"), ("ERR", [0], "")
    )
    kept = recording()
    Interrupts(root).read(kept, 1)
    found = kept.counters("interrupts")
    assert len(found) == 1 + 95
    assert found[labels(irq=41, cpu=39, device="eth0-Tx-Rx-5")].last == 1000
    assert labels(irq="LOC", cpu=95, device="LOC") in found


def test_only_what_changed_is_added_and_what_was_zero_starts_at_zero(tmp_path: Path) -> None:
    kept = recording()
    reader = Interrupts(interrupts(tmp_path, [0, 1], ("41", [9, 0], MSI + "eth0-Tx-Rx-0"), ("42", [1, 1], MSI + "nvme0q0")))
    reader.read(kept, 10)
    interrupts(tmp_path, [0, 1], ("41", [9, 4], MSI + "eth0-Tx-Rx-0"), ("42", [1, 1], MSI + "nvme0q0"))
    reader.read(kept, 20)
    moved = kept.counters("interrupts")[labels(irq=41, cpu=1, device="eth0-Tx-Rx-0")]
    assert (moved.times.tolist(), moved.values.tolist(), moved.delta) == ([10, 20], [0, 4], 4)
    assert len(kept["counters"]) == 3 + 2


def test_an_interrupt_that_a_reset_made_anew_counts_from_zero(tmp_path: Path) -> None:
    kept = recording()
    reader = Interrupts(interrupts(tmp_path, [0, 1], ("41", [500, 0], MSI + "eth0-Tx-Rx-0")))
    reader.read(kept, 10)
    interrupts(tmp_path, [0, 1], ("55", [3, 0], MSI + "eth0-Tx-Rx-0"))
    reader.read(kept, 20)
    assert kept.counters("interrupts")[labels(irq=55, cpu=0, device="eth0-Tx-Rx-0")].delta == 3


def test_a_number_given_to_another_device_is_another_series(tmp_path: Path) -> None:
    kept = recording()
    reader = Interrupts(interrupts(tmp_path, [0], ("41", [500], MSI + "eth0-Tx-Rx-0")))
    reader.read(kept, 10)
    interrupts(tmp_path, [0], ("41", [7], MSI + "nvme0q1"))
    reader.read(kept, 20)
    assert kept.counters("interrupts")[labels(irq=41, cpu=0, device="nvme0q1")].values.tolist() == [7]
    assert kept.counters("interrupts")[labels(irq=41, cpu=0, device="eth0-Tx-Rx-0")].values.tolist() == [500]


def test_a_core_that_goes_and_comes_back_keeps_its_counts(tmp_path: Path) -> None:
    kept = recording()
    rest = MSI + "eth0-Tx-Rx-0"
    reader = Interrupts(interrupts(tmp_path, [0, 1, 2], ("41", [1, 20, 300], rest)))
    reader.read(kept, 10)
    interrupts(tmp_path, [0, 2], ("41", [1, 301], rest))
    reader.read(kept, 20)
    interrupts(tmp_path, [0, 1, 2], ("41", [1, 25, 301], rest))
    reader.read(kept, 30)
    found = {dict(at)["cpu"]: series.values.tolist() for at, series in kept.counters("interrupts").items()}
    assert found == {"0": [1], "1": [20, 25], "2": [300, 301]}


def test_the_same_line_below_another_header_is_another_cores(tmp_path: Path) -> None:
    kept = recording()
    reader = Interrupts(interrupts(tmp_path, [0, 1], ("41", [1, 20], MSI + "eth0-Tx-Rx-0")))
    reader.read(kept, 10)
    interrupts(tmp_path, [0, 2], ("41", [1, 20], MSI + "eth0-Tx-Rx-0"))
    reader.read(kept, 20)
    assert kept.counters("interrupts")[labels(irq=41, cpu=2, device="eth0-Tx-Rx-0")].last == 20


def test_a_line_that_was_cut_off_is_not_taken_for_a_small_number(tmp_path: Path) -> None:
    root = interrupts(tmp_path, [0], ("41", [123456], ""), ("42", [123456], ""))
    text = (tmp_path / "proc/interrupts").read_text()
    (tmp_path / "proc/interrupts").write_text(text.rstrip()[:-3])
    kept = recording()
    Interrupts(root).read(kept, 1)
    assert [dict(at)["irq"] for at in kept.counters("interrupts")] == ["41"]


def test_hostile_names_are_carried_as_data(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/interrupts").write_bytes(b"  CPU0\n 41:  5  PCI-MSI 1-edge      \x1b[31m\xff, two\n")
    kept = recording()
    Interrupts(Root(str(tmp_path))).read(kept, 1)
    assert [dict(at)["device"] for at in kept.counters("interrupts")] == ["\x1b[31m\\xff, two"]


@pytest.mark.parametrize(
    ("rest", "name"),
    [
        ("PCI-MSI 524288-edge      eth0-Tx-Rx-5", "eth0-Tx-Rx-5"),  # x86, 5.4
        ("PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0", "virtio2-input.0"),  # x86, 6.18
        ("IR-PCI-MSIX-0000:3b:00.0   5-edge      mlx5_comp5@pci:0000:3b:00.0", "mlx5_comp5@pci:0000:3b:00.0"),
        ("IO-APIC   9-fasteoi   acpi", "acpi"),
        ("IO-APIC   4-edge      ttyS0", "ttyS0"),
        ("PCI-MSI 458752-edge      aerdrv, PCIe PME, pciehp", "aerdrv, PCIe PME, pciehp"),
        ("GICv3  30 Level     arch_timer", "arch_timer"),  # arm64
        ("ITS-MSI 524289 Edge      ena-mgmnt@pci:0000:00:05.0", "ena-mgmnt@pci:0000:00:05.0"),
        ("xen-dyn    -event     xenbus", "xenbus"),
        ("xen-pirq    -ioapic-level  acpi", "acpi"),
        ("dummy    44  rtc", "rtc"),
        ("IO-APIC   2-edge", ""),  # interrupts were counted, nobody handles them
        ("PCI-MSI 524288-edge", ""),
        ("", ""),
    ],
)
def test_the_handlers_are_the_last_part_of_the_line(rest: str, name: str) -> None:
    assert actions(rest.encode() + b"   ").decode() == name


@pytest.mark.parametrize(
    ("interrupt", "tx", "rx"),
    [
        ("eth0-Tx-Rx-5", ("eth0", 5), ("eth0", 5)),
        ("ens5-Tx-Rx-31", ("ens5", 31), ("ens5", 31)),
        ("i40e-eth0-TxRx-5", ("eth0", 5), ("eth0", 5)),
        ("ice-ens1f0np0-TxRx-12", ("ens1f0np0", 12), ("ens1f0np0", 12)),
        ("eth0-tx-3", ("eth0", 3), None),
        ("eth0-rx-3", None, ("eth0", 3)),
        ("mlx5_comp5@pci:0000:3b:00.0", ("0000:3b:00.0", 5), ("0000:3b:00.0", 5)),
        ("virtio1-output.5", ("virtio1", 5), None),
        ("virtio1-input.5", None, ("virtio1", 5)),
        ("eth0-rxtx-2", ("eth0", 2), ("eth0", 2)),
        ("eth0-txrx-2", ("eth0", 2), ("eth0", 2)),
        ("hns3-0000:7d:00.0-TxRx-3", ("0000:7d:00.0", 3), ("0000:7d:00.0", 3)),
        ("mana_q3@pci:7870:00:00.0", ("7870:00:00.0", 3), ("7870:00:00.0", 3)),
        ("eth0-q1-tx", ("eth0", 1), None),
        ("eth0-q1-rx", None, ("eth0", 1)),
        ("mana_hwc@pci:7870:00:00.0", None, None),
        ("gve-ntfy-blk3@pci:0000:00:04.0", None, None),
        ("nvme0q3", None, None),
        ("virtio1-config", None, None),
        ("ena-mgmnt@pci:0000:20:03.0", None, None),
        ("mlx5_async0@pci:0000:3b:00.0", None, None),
        ("eth0-Tx-Rx-999999999999", None, None),
        ("LOC", None, None),
        ("", None, None),
    ],
)
def test_the_queue_is_read_from_the_name(interrupt: str, tx: tuple[str, int] | None, rx: tuple[str, int] | None) -> None:
    assert (queue_of(interrupt, "tx"), queue_of(interrupt, "rx")) == (tx, rx)


def test_a_queue_belongs_to_the_core_that_took_its_interrupts_in_the_recording(tmp_path: Path) -> None:
    kept = recording()
    queues = [MSI + f"eth0-Tx-Rx-{queue}" for queue in range(2)]
    # Since boot core 0 took most of queue 0, and then it was moved to core 2. Queue 1 stays silent: core 1 had it.
    reader = Interrupts(interrupts(tmp_path, [0, 1, 2], ("41", [9000, 0, 0], queues[0]), ("42", [3, 500, 0], queues[1])))
    reader.read(kept, 10)
    interrupts(tmp_path, [0, 1, 2], ("41", [9002, 0, 40], queues[0]), ("42", [3, 500, 0], queues[1]))
    reader.read(kept, 20)
    assert queue_cores(kept) == {("eth0", 0): 2, ("eth0", 1): 1}


def test_a_queue_named_by_its_bus_is_found_by_the_network_device_too() -> None:
    kept = recording()
    kept.count(1, "interrupts", 70, labels(irq=50, cpu=11, device="mlx5_comp5@pci:0000:3b:00.0"))
    kept.count(1, "interrupts", 80, labels(irq=51, cpu=4, device="virtio2-output.0"))
    kept.count(1, "interrupts", 90, labels(irq=52, cpu=5, device="virtio2-input.0"))
    kept.count(1, "nic_driver", 1, labels(device="ens1", driver="mlx5_core", version="6.1", bus="0000:3b:00.0"))
    kept.count(1, "nic_driver", 1, labels(device="eth0", driver="virtio_net", version="1.0.0", bus="virtio2"))
    assert queue_cores(kept) == {("0000:3b:00.0", 5): 11, ("ens1", 5): 11, ("virtio2", 0): 4, ("eth0", 0): 4}
    assert queue_cores(kept, "rx")["eth0", 0] == 5


def test_a_recording_without_interrupts_maps_no_queue() -> None:
    assert queue_cores(recording()) == {}


@pytest.mark.parametrize("raw", [b"", b"x", b"1-", b"-1", b"3-1,", b"0-99999999", b"5,4", b"1,1", b"\xff", b"0-65536"])
def test_what_is_no_list_of_cpus_is_no_cpu(raw: bytes) -> None:
    assert cpu_list(raw) == ()


@given(st.sets(st.integers(0, 300), min_size=1))
def test_a_list_of_cpus_is_read_back(cpus: set[int]) -> None:
    assert cpu_list(",".join(map(str, sorted(cpus))).encode() + b"\n") == tuple(sorted(cpus))


@given(st.binary(max_size=200) | st.text(" -0123456789EdgeLvlPCIMSx,.", max_size=200).map(str.encode))
def test_garbage_never_breaks_the_names(raw: bytes) -> None:
    name = actions(raw)
    assert len(name) <= len(raw)
    queue_of(name.decode("latin-1"))
    assert all(0 <= cpu < 65_536 for cpu in cpu_list(raw))


@given(st.lists(st.binary(max_size=300), max_size=3))
def test_garbage_is_unreadable_or_nothing(tmp_path_factory: pytest.TempPathFactory, readings: list[bytes]) -> None:
    tree = tmp_path_factory.mktemp("node")
    (tree / "proc").mkdir()
    kept = recording()
    reader = Interrupts(Root(str(tree)))
    for time, raw in enumerate(readings):
        (tree / "proc/interrupts").write_bytes(b"  CPU0 CPU1\n" + raw)
        reader.read(kept, time)
    assert all(value >= 0 for value in kept["counters"].ints("value"))
