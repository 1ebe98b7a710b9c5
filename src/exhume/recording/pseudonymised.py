"""A recording with pseudonyms for names: which column of which table holds what kind of name.

A column that is not listed is read as running text, the strictest: a table that somebody adds gives nothing away before
somebody has said what is in it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast

from exhume.recording.pseudonyms import Pseudonyms
from exhume.recording.recording import Labels, Recording, Table
from exhume.recording.source_state import changed, decoded, encoded

Rule: TypeAlias = Callable[[str], str]

# Words of ours or of the kernel's: states, methods, names of counters and sources.
_OURS = {
    "stacks": ("class",),
    "frames": ("space",),
    "memcg": ("method", "scope"),
    "memcg_walk": ("method",),
    "cgroup_events": ("kind",),
    "counters": ("name",),
    "events": ("kind", "severity"),
    "latency": ("what", "stage"),
    "units": ("active", "sub", "result", "enabled"),
    "processes": ("state",),
    "sources": ("name", "state"),
}
_PATHS = ("path", "home", "example", "cgroup", "parent_cgroup", "mount")
_PROGRAMS = ("comm", "process", "worst_comm", "parent_comm")
# Labels of counters and fields of events, the same way; the rest is running text.
_OUR_LABELS = frozenset(
    "kind resource field stat side driver driver_version bus pci what vectors offender_policy constraint clock flavour "
    "reset_reason function waits_for direction result code status of".split()
)
_PROGRAM_LABELS = frozenset("comm thread offender_comm process task".split())


def pseudonymised(recording: Recording, names: Pseudonyms) -> Recording:
    """Structured names come first, so that running text finds them."""
    names.keep([recording.node.kernel, *recording.node.kernel.split("-")])
    node = replace(recording.node, hostname=names.host(recording.node.hostname), boot_id=names.boot(recording.node.boot_id))
    made = Recording(node)
    done: dict[str, dict[str, Any]] = {name: {} for name in recording.tables}
    for running in (False, True):
        for name, table in recording.tables.items():
            for column in table.schema.columns:
                rule = _rule(name, column.name, names)
                if (rule is None) == running and column.kind == "text":
                    done[name][column.name] = _each(table.texts(column.name), rule or names.text)
                elif column.kind == "labels" and running:
                    done[name][column.name] = _labels(table, column.name, names)
        if running and "sources" in done:
            done["sources"]["reasons"] = _each(recording["sources"].texts("reasons"), lambda stored: _reasons(stored, names))
        if not running:
            if "frames" in done:
                done["frames"].update(_frames(recording["frames"], names))
            _structured_labels(recording, names)
    for name, table in recording.tables.items():
        whole: dict[str, Any] = {}
        for column in table.schema.columns:
            if column.kind in ("time", "int"):
                whole[column.name] = table.ints(column.name)
            elif column.kind == "list":
                whole[column.name] = table.lists(column.name)
            else:
                whole[column.name] = done[name][column.name]
        made[name].add_columns(whole)
    return made


def _rule(table: str, column: str, names: Pseudonyms) -> Rule | None:
    """None: running text, or looked at elsewhere."""
    if column in _OURS.get(table, ()):
        return _ours
    if table == "frames":
        return _ours
    if column in _PATHS:
        return names.path
    if column in _PROGRAMS:
        return names.program
    return {
        "unit": names.unit,
        "needed_by": lambda units: " ".join(unit if unit == "?" else names.unit(unit) for unit in units.split(" ")),
        "pod": names.pod,
        "container": names.container,
        "image": names.image,
        "device": names.device,
    }.get(column)


def _ours(text: str) -> str:
    return text


def _each(texts: Sequence[str], rule: Rule) -> list[str]:
    """A column repeats itself: each text is looked at once."""
    known = {text: rule(text) for text in dict.fromkeys(texts)}
    return [known[text] for text in texts]


def _reasons(stored: str, names: Pseudonyms) -> str:
    """The texts in them are running text, and keys and codes are ours. What cannot be read here is left out."""
    reasons = decoded("", stored)
    return encoded(tuple(changed(reason, names.text) for reason in reasons)) if stored else ""


def _frames(frames: Table, names: Pseudonyms) -> dict[str, list[str]]:
    rows = list(zip(frames.texts("name"), frames.texts("module"), frames.texts("space"), strict=True))
    functions = [names.kernel_function(name) if space == "kernel" else names.function(name) for name, _, space in rows]
    names.keep(name for name, (_, _, space) in zip(functions, rows, strict=True) if space == "kernel")
    return {"name": functions, "module": [names.module(module, space == "kernel") for _, module, space in rows]}


def _structured_labels(recording: Recording, names: Pseudonyms) -> None:
    """Learn the names in labels before any text is read."""
    for table in recording.tables.values():
        for column in table.schema.columns:
            if column.kind == "labels":
                for pairs in dict.fromkeys(_pairs(table, column.name)):
                    for key, value in pairs:
                        if (rule := _label_rule(table.schema.name, key, names)) is not None:
                            rule(value)


def _labels(table: Table, column: str, names: Pseudonyms) -> list[Labels]:
    """Keys are ours: no reader takes one from a name."""
    known: dict[Labels, Labels] = {}
    for pairs in dict.fromkeys(_pairs(table, column)):
        rules = [_label_rule(table.schema.name, key, names) or names.text for key, _ in pairs]
        known[pairs] = tuple(
            (key, value if _is_number(value) else rule(value)) for rule, (key, value) in zip(rules, pairs, strict=True)
        )
    return [known[pairs] for pairs in _pairs(table, column)]


def _pairs(table: Table, column: str) -> list[Labels]:
    return cast(list[Labels], table.texts(column))


def _is_number(value: str) -> bool:
    return value.removeprefix("-").isdecimal()


def _label_rule(table: str, key: str, names: Pseudonyms) -> Rule | None:
    if key in _OUR_LABELS:
        return _ours
    if key.endswith("cgroup") or key == "path":
        return names.path
    if key in _PROGRAM_LABELS:
        return names.program
    of_key = {
        "stack": names.functions,
        "device": names.interrupt if table == "counters" else names.device,
        "unit": names.unit,
        "pod": names.pod,
        "container": names.container,
        "image": names.image,
    }
    return of_key.get(key)
