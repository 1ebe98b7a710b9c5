"""The map of the network devices as rows of a recording, and back: so that what is known of a core then can be named later.

A row is written when it changes; a queue, a driver or a mask that is no more is said to be. `nic_queue` has a core for its
value and not in its labels, so that an interrupt that is moved about, as irqbalance does, is one series with a history, and
not a series for each core it has ever been on.
"""

import re
from collections.abc import Iterable

import numpy as np

from exhume.host.cpu_list import cpu_list, cpu_text
from exhume.recording.recording import Labels, Recording, Series, labels
from exhume.sources.interrupts import GONE, SEVERAL, Sides
from exhume.sources.nic_map import Device, Queue

# Of all drivers, what counts a device or a queue given up and begun anew, and why; see _TELLING in nic.py for whose they are.
_RESET = re.compile(
    "total_resets|reset_fail|tx_timeout|wd_expired|missing_intr|missing_first_intr|missing_tx_cmpl|suspected_poll_starvation"
    "|os_netdev_wd|admin_to|device_request_reset|missing_admin_interrupt|bad_[rt]x_req_id|bad_rx_desc_num|invalid_state"
    r"|[rt]x(?:_queue_)?\d*_tx_timeouts|tx\d*_recover|tx_timeout_count|tx_timeout\.nic|[rt]x_total_resets|tx_timeouts|reset_cnt"
    "|tx timeout count"
).fullmatch

Rows = dict[tuple[str, Labels], int]
_SIDES: dict[str, Sides] = {"rx": "rx", "tx": "tx", "both": "both"}


def rows(devices: Iterable[Device]) -> Rows:
    """Name and labels of each counter, and its value."""
    found: Rows = {}
    for device in devices:
        name = device.name
        who = labels(device=name, driver=device.driver, version=device.driver_version, bus=device.bus)
        found["nic_driver", who] = 1
        for queue in device.queues:
            number, irq = ("" if part is None else part for part in (queue.number, queue.irq))
            at = labels(device=name, queue=number, side=queue.side, irq=irq)
            found["nic_queue", at] = queue.cpus[0] if len(queue.cpus) == 1 else SEVERAL
        for number, cpus in device.rps:
            found["nic_rps", labels(device=name, queue=number, cores=cpu_text(cpus))] = 1
        if device.numa_node is not None:
            found["nic_numa_node", labels(device=name)] = device.numa_node
        if device.threaded is not None:
            found["nic_threaded", labels(device=name)] = int(device.threaded)
    return found


def gone(before: Rows, now: Rows) -> Rows:
    """What is to be said of the rows that are no more."""
    ends = {"nic_queue": GONE, "nic_rps": 0, "nic_driver": 0}
    return {key: ends[key[0]] for key in before if key not in now and key[0] in ends}


def recorded_map(recording: Recording, at: int | None = None) -> list[Device]:
    """The devices as they were at a time of the recording, or at its end; for `devices_of`.

    The busiest core is the one that took most interrupts in the recording, or since boot where it took none.
    """
    busiest = _busiest(recording)
    queues: dict[str, list[Queue]] = {}
    for labelled, series in recording.counters("nic_queue").items():
        of, value = dict(labelled), value_at(series, at)
        if value is None or value == GONE or of.get("side") not in _SIDES:
            continue
        irq, cpus = _number(of.get("irq", "")), (value,) if value >= 0 else ()
        queue = Queue(_number(of.get("queue", "")), _SIDES[of["side"]], irq, cpus, None if irq is None else busiest.get(irq))
        queues.setdefault(of.get("device", ""), []).append(queue)
    handed: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
    for labelled, series in recording.counters("nic_rps").items():
        of = dict(labelled)
        number = _number(of.get("queue", ""))
        if value_at(series, at) == 1 and number is not None:
            handed.setdefault(of.get("device", ""), []).append((number, cpu_list(of.get("cores", "").encode())))
    devices: dict[str, Device] = {}
    for labelled, series in recording.counters("nic_driver").items():
        of = dict(labelled)
        name = of.get("device", "")
        if value_at(series, at) != 1:
            continue
        threaded, node = (
            value_at(found, at) if (found := recording.counter(counter, labels(device=name))) is not None else None
            for counter in ("nic_threaded", "nic_numa_node")
        )
        devices[name] = Device(
            name=name,
            kind="hardware" if of.get("bus") else "bond",
            driver=of.get("driver", ""),
            driver_version=of.get("version", ""),
            bus=of.get("bus", ""),
            numa_node=node,
            threaded=None if threaded is None else threaded > 0,
            queues=tuple(sorted(queues.get(name, ()), key=lambda queue: (queue.number or 0, queue.side, queue.irq or 0))),
            rps=tuple(sorted(handed.get(name, ()))),
        )
    return list(devices.values())


def value_at(series: Series, at: int | None) -> int | None:
    """The value that was the last at that time; None before the first."""
    if at is None:
        return series.last
    before = int(np.searchsorted(series.times, at, side="right"))
    return int(series.values[before - 1]) if before else None


def _busiest(recording: Recording) -> dict[int, int]:
    counted: dict[int, tuple[tuple[int, int], int]] = {}
    for labelled, series in recording.counters("interrupts").items():
        of = dict(labelled)
        irq, cpu = _number(of.get("irq", "")), _number(of.get("cpu", ""))
        if irq is not None and cpu is not None:
            counted[irq] = max(counted.get(irq, ((-1, -1), 0)), ((series.delta, series.last), cpu))
    return {irq: cpu for irq, (_, cpu) in counted.items()}


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else None
