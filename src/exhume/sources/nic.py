"""Network hardware: packets, drops and link changes from /sys, and by ethtool what the driver knows of stalls and resets.

Only devices with hardware behind them, and bonds: a Kubernetes node has hundreds of veths, and none of them resets. With them
goes what is static of the map of the devices: driver, queues and the cores that serve them, NUMA node.
"""

import errno
import os
import re
import threading
from dataclasses import dataclass, field, replace

from exhume.errors import Unreadable
from exhume.host.quantities import SECOND, duration
from exhume.host.root import Root
from exhume.kernel.ethtool import Driver, Ethtool
from exhume.recording.recording import Labels, Recording, labels
from exhume.recording.source_state import ContainerOnly, Limit, Reasons
from exhume.sources import nic_files as files
from exhume.sources import nic_rows
from exhume.sources.nic_map import MOST_DEVICES, PATIENCE_S, Kind, read_plain
from exhume.text import decode, from_path

# What does not change is said again after so long: of very many series a recorder carries on those that it heard of last.
REMIND_NS = 600_000_000_000

# /sys/class/net/*/, net/core/net-sysfs.c; none of these waits for the rtnl lock.
_FILES = {
    "nic_rx_packets": "statistics/rx_packets",
    "nic_tx_packets": "statistics/tx_packets",
    "nic_rx_dropped": "statistics/rx_dropped",
    "nic_tx_dropped": "statistics/tx_dropped",
    "nic_rx_errors": "statistics/rx_errors",
    "nic_tx_errors": "statistics/tx_errors",
    "nic_rx_missed_errors": "statistics/rx_missed_errors",
    "nic_carrier_changes": "carrier_changes",
}

# The statistics that say that a queue stalled, dropped or was reset, by the driver that they were found in. A name is kept
# whichever driver uses it: out-of-tree builds and virtual functions go by other driver names and the same statistics.
_TELLING = {
    # ena_stats_global_strings, ena_stats_eni_strings, ena_stats_ena_com_admin_strings and the two queue tables of
    # ena_ethtool.c (amzn-drivers); before 2.10 the reasons of a reset are not told apart
    "ena": (
        "total_resets|reset_fail|tx_timeout|wd_expired|admin_q_pause|bad_tx_req_id|bad_rx_req_id|bad_rx_desc_num",
        "missing_intr|missing_first_intr|missing_admin_interrupt|missing_tx_cmpl|suspected_poll_starvation|os_netdev_wd",
        "admin_to|device_request_reset|invalid_state|[rt]x_desc_malformed|suspend|resume|interface_up|interface_down",
        "(?:bw_in|bw_out|pps|conntrack|linklocal)_allowance_exceeded|conntrack_allowance_available",
        "ena_admin_q_[a-z_]+",
        r"queue_\d+_tx_(?:queue_stop|queue_wakeup|missed_tx|napi_comp|unmask_interrupt|prepare_ctx_err|bad_req_id)",
        r"queue_\d+_rx_(?:empty_rx_ring|page_alloc_fail|skb_alloc_fail|bad_req_id|bad_desc_num)",
    ),
    # virtnet_rq_stats_desc, virtnet_sq_stats_desc of virtio_net.c; tx_queue_0_ on older kernels, tx0_ on newer
    "virtio_net": (r"[rt]x(?:_queue_)?\d*_(?:drops|tx_timeouts)",),
    # en_stats.c of mlx5
    "mlx5_core": (
        "tx_queue_stopped|tx_queue_dropped|tx_queue_wake|tx_recover|tx_cqe_err|rx_out_of_buffer|rx_buff_alloc_err",
        "rx_discards_phy|tx_discards_phy|rx_steer_missed_packets|ch_eq_rearm",
        r"tx\d+_(?:stopped|dropped|recover|cqe_err)|rx\d+_buff_alloc_err|ch\d+_eq_rearm",
    ),
    # e1000_gstrings_stats, igb_gstrings_stats, ixgbe_gstrings_stats, igc_gstrings_stats
    "e1000e, igb, ixgbe, igc": (
        "tx_timeout_count|tx_restart_queue|tx_busy|rx_no_buffer_count|rx_no_dma_resources|rx_missed_errors",
    ),
    # i40e_gstrings_misc_stats and _stats, ice_gstrings_vsi_stats and _pf_stats
    "i40e, ice": (r"tx_timeout\.nic|tx_stopped|tx_restart|rx_alloc_fail|port\.rx_discards|rx_dropped\.nic",),
    # bnxt_ring_drv_stats_arr
    "bnxt_en": (
        "[rt]x_total_resets|[rt]x_total_ring_discards|rx_total_(?:oom|netpoll)_discards|rx_total_buf_errors|total_missed_irqs",
    ),
    # gve_gstrings_main_stats, _rx_stats, _tx_stats of gve_ethtool.c
    "gve": (
        "tx_timeouts|reset_cnt|interface_(?:up|down)_cnt|page_alloc_fail",
        r"tx_stop\[\d+\]|rx_queue_drop_cnt\[\d+\]|rx_no_buffers_posted\[\d+\]",
    ),
    # netvsc_stats of netvsc_drv.c, mana_eth_stats of mana_ethtool.c
    "hv_netvsc, mana": ("stop_queue|wake_queue|tx_busy|tx_no_space|tx_send_full|tx_no_memory|rx_comp_busy|rx_no_memory",),
    # vmxnet3_global_stats
    "vmxnet3": ("tx timeout count",),
}
_STATIC = ("nic_driver", "nic_queue", "nic_rps", "nic_numa_node", "nic_threaded")
_IS_TELLING = re.compile("|".join(pattern for patterns in _TELLING.values() for pattern in patterns)).fullmatch


@dataclass(slots=True)
class _Answers:
    """What ethtool has said so far; the thread that asks fills it, so a slow device does not hide those before it."""

    drivers: dict[str, Driver] = field(default_factory=dict)
    statistics: dict[str, dict[str, int]] = field(default_factory=dict)
    threaded: dict[str, bool | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    asking: str = ""


class Nic:
    name = "nic"
    every_ns = 0

    def __init__(self, root: Root) -> None:
        self._root = root
        self._last: dict[tuple[str, Labels], int] = {}
        self._map: nic_rows.Rows = {}
        self._threaded: dict[str, bool] = {}
        self._reminded: int | None = None
        self._drivers: dict[str, Driver] = {}
        self._ethtool: Ethtool | None = None
        self._without = ""
        """Why ethtool is not asked, once that is known."""
        self._asking: threading.Thread | None = None

    def read(self, recording: Recording, time: int) -> Reasons:
        found = self._devices()
        if not found:
            raise Unreadable("/sys/class/net has no device with hardware behind it; a container often sees none")
        devices = found[:MOST_DEVICES]
        answers = self._ask(devices)
        self._remind(time)
        for device, _ in devices:
            self._add(recording, time, device, answers)
        self._add_map(recording, time, devices, answers)
        unread = f"{len(devices)} of {len(found)} devices were read" if len(found) > len(devices) else ""
        limits = (Limit(note) for note in (*answers.notes, unread) if note)
        return (*limits, ContainerOnly("devices")) if self._in_container() else tuple(limits)

    def _devices(self) -> list[tuple[str, Kind]]:
        hardware, bonds, _ = files.kinds(self._root)
        return [*((name, "hardware") for name in hardware), *((name, "bond") for name in bonds)]

    def _remind(self, time: int) -> None:
        if self._reminded is not None and time - self._reminded < REMIND_NS:
            return
        self._reminded = time
        self._last = {key: value for key, value in self._last.items() if key[0] not in _STATIC}

    def _in_container(self) -> bool:
        """Whether these are not the node's devices. Init's namespace may not be looked at without its capabilities."""
        if not self._root.own:
            return False
        try:
            ours, nodes = os.readlink("/proc/self/ns/net"), os.readlink(f"/{files.NODE_NAMESPACE}")
        except OSError:
            return False
        return ours != nodes

    def _add(self, recording: Recording, time: int, device: str, answers: _Answers) -> None:
        name = from_path(device)
        at = labels(device=name)
        for counter, file in _FILES.items():
            text = files.file(self._root, device, file)
            if text.isdigit() and len(text) <= 20:
                self._count(recording, time, counter, int(text), at)
        for stat, value in answers.statistics.get(device, {}).items():
            if _IS_TELLING(stat):
                self._count(recording, time, "nic_stat", value, labels(device=name, stat=stat))

    def _driver(self, device: str, answers: _Answers) -> Driver:
        """As ethtool says, now or earlier; from /sys where it was never asked. A built-in driver has no version there."""
        if device in answers.drivers:
            self._drivers[device] = answers.drivers[device]
        if device in self._drivers:
            return self._drivers[device]
        version = decode(files.file(self._root, device, "device/driver/module/version"))
        return Driver(files.link(self._root, device, "device/driver"), version, "")

    def _add_map(self, recording: Recording, time: int, devices: list[tuple[str, Kind]], answers: _Answers) -> None:
        self._threaded |= {device: threaded for device, threaded in answers.threaded.items() if threaded is not None}
        found = []
        for (name, _), device in zip(devices, read_plain(self._root, devices), strict=True):
            driver = self._driver(name, answers)
            threaded = self._threaded.get(name)
            found.append(replace(device, driver=driver.name, driver_version=driver.version, threaded=threaded))
        before, self._map = self._map, nic_rows.rows(found)
        for (name, at), value in (nic_rows.gone(before, self._map) | self._map).items():
            self._count(recording, time, name, value, at)

    def _count(self, recording: Recording, time: int, name: str, value: int, at: Labels) -> None:
        if value < 1 << 63 and self._last.get((name, at)) != value:
            self._last[name, at] = value
            recording.count(time, name, value, at)

    def _ask(self, devices: list[tuple[str, Kind]]) -> _Answers:
        answers = _Answers()
        if self._asking is not None and self._asking.is_alive():
            answers.notes.append("ethtool has not answered since it was last asked")
            return answers
        if self._ethtool is None and not self._without:
            self._open()
        if self._ethtool is None:
            answers.notes.append(self._without)
        names = [name for name, _ in devices]
        self._asking = threading.Thread(
            target=_ask_all, args=(self._root, self._ethtool, names, answers), name="exhume-ethtool", daemon=True
        )
        try:
            self._asking.start()
        except RuntimeError:  # what Python makes of EAGAIN: a limit of threads is reached
            self._asking = None
            answers.notes.append("ethtool was not asked: no thread can be started")
            return answers
        self._asking.join(PATIENCE_S)
        if not self._asking.is_alive():
            return answers
        silent = f"{from_path(answers.asking)} did not answer ethtool within {duration(PATIENCE_S * SECOND)}"
        note = f"{silent}: it, or the rtnl lock, is held up"
        return _Answers(dict(answers.drivers), dict(answers.statistics), dict(answers.threaded), [*answers.notes, note])

    def _open(self) -> None:
        """ethtool speaks to the devices of the network namespace its socket was made in: that has to be the root's."""
        try:
            self._ethtool = Ethtool(files.namespace_path(self._root))
        except (FileNotFoundError, NotADirectoryError):
            self._without = "ethtool was not asked: no live node's /proc below this root"
        except OSError as error:
            what = "no socket" if self._root.own else "no way into the node's network namespace"
            self._without = f"ethtool was not asked: {what} ({os.strerror(error.errno or 0)})"


def _ask_all(root: Root, ethtool: Ethtool | None, devices: list[str], answers: _Answers) -> None:
    for device in devices:
        answers.asking = device
        try:
            if ethtool is not None:
                answers.drivers[device] = ethtool.driver(device)
                answers.threaded[device] = files.threaded(root, device)  # after ethtool had the lock: see there
                answers.statistics[device] = ethtool.statistics(device)
            else:
                answers.threaded[device] = files.threaded(root, device)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:  # a driver without any statistics is no news
                answers.notes.append(f"{from_path(device)}: ethtool says {error.strerror}")
