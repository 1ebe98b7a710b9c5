"""Errors meant for people. Anything else that escapes is a bug of ours and is reported as one."""

EXIT_HEALTHY = 0
EXIT_WARNING = 1
EXIT_CRITICAL = 2
EXIT_CANNOT_JUDGE = 3
EXIT_USAGE = 64  # EX_USAGE of sysexits.h
EXIT_BUG = 70  # EX_SOFTWARE of sysexits.h


class ExhumeError(Exception):
    """One sentence that says what failed, on what, and what to do."""

    exit_code = EXIT_CANNOT_JUDGE


class UsageError(ExhumeError):
    """What was typed, or written into the configuration, cannot be meant."""

    exit_code = EXIT_USAGE


class Refused(ExhumeError):
    """Something stands in the way that must not be pushed aside."""

    exit_code = EXIT_CRITICAL


class NotYet(ExhumeError):
    """What is asked for is still being read: ask again."""


class Unreadable(ExhumeError):
    """A source that cannot be seen. Never fatal: the source is reported as off, with this text as the reason."""


class NotPresent(Unreadable):
    """The node does not run what the source reads, so that nothing is hidden."""
