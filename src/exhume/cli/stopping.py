"""Ending in good order: SIGINT and SIGTERM are noted, and whoever asks is told. A second one ends at once."""

import signal
from types import FrameType
from typing import Self


class Stopping:
    """Callable: whether it is time to stop. A context manager that puts the handlers back."""

    def __init__(self) -> None:
        self._asked = False
        self._before: dict[int, object] = {}

    def __call__(self) -> bool:
        return self._asked

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._asked = True
