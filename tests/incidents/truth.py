"""What a right verdict on an incident is."""

from dataclasses import dataclass

from exhume.recording.recording import Recording


@dataclass(frozen=True, slots=True)
class Truth:
    causes: tuple[str | None, ...]
    """Any of them is right; None: the cause is not visible, or there is none."""
    health: tuple[str, ...] = ("critical",)
    culprits: tuple[str, ...] = ()
    """One of these must be in the subject or in a culprit's name; empty: nobody needs to be named."""
    innocent: tuple[str, ...] = ()
    """None of these may be in the subject, in a culprit's name or be the target of a remedy."""
    together: tuple[str, ...] = ()
    """What they do they do to each other: none of them is a culprit alone."""
    chain: tuple[str, ...] = ()
    """Kinds that the chain must have, in this order."""
    never: tuple[str, ...] = ()
    """Kinds that must not be in the chain."""
    says: tuple[str, ...] = ()
    """Words that the summary, the advice, the next steps or what to switch on must have."""
    incidents: tuple[tuple[tuple[str | None, ...], str], ...] = ()
    """In order of time: causes that are right, and a name that the subject or the summary must have."""


@dataclass(frozen=True, slots=True)
class Told:
    """An incident: what was recorded, and what happened."""

    recording: Recording
    truth: Truth
