"""Who needs a unit, by systemd's dependency graph: what is enabled, in trouble and needed by nobody can be switched off."""

from collections.abc import Mapping

# The inverse of Requires=, Requisite=, BindsTo=, PartOf=, Wants= and of Unit= in timers, sockets and paths
# (org.freedesktop.systemd1(5), properties of a unit).
QUESTIONS = ("RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf", "WantedBy", "TriggeredBy")
# Without an answer to these nothing is known; the others are older systemd's not to have.
_DECISIVE = ("RequiredBy", "WantedBy", "TriggeredBy")
UNASKED = "?"
_MOST_NAMES, _LONGEST_NAME = 32, 256


def needed_by(known: Mapping[str, object]) -> str:
    """Names apart by a space, "" for nobody, "?" where it was not answered.

    That a target wants a unit is what enabling does ([Install] of systemd.unit(5)), and no need; that one requires it is.
    """
    if not all(isinstance(known.get(question), list) for question in _DECISIVE):
        return UNASKED
    names: set[str] = set()
    for question in QUESTIONS:
        answer = known.get(question)
        for name in answer if isinstance(answer, list) else ():
            if isinstance(name, str) and not (question == "WantedBy" and name.endswith(".target")):
                names.add(name)
    # A unit's name has no space in it (unit_name_is_valid of systemd); what has one is no name.
    return " ".join([name for name in sorted(names) if len(name) <= _LONGEST_NAME and name.split() == [name]][:_MOST_NAMES])
