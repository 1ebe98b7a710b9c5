"""An iterator that works in a thread of its own, ahead of who takes its items.

numpy lets go of the interpreter in its loops: the next batch of a file is taken apart on another core while this one is made
rows of.
"""

import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, Generic, NamedTuple, TypeVar

Item = TypeVar("Item")
_AGAIN_S: Final = 0.05


class _Given(NamedTuple, Generic[Item]):
    item: Item


def ahead(items: Iterator[Item], most: int = 1) -> Iterator[Item]:
    """The same items, and what they raise in its place. So many wait to be taken, besides the one that is worked on.

    Whoever ends this early waits until the thread is done with the item it works on, and it takes no other.
    """
    waiting: queue.Queue[_Given[Item] | BaseException | None] = queue.Queue(most)
    ended = threading.Event()

    def work() -> None:
        last: BaseException | None = None
        try:
            for item in items:
                waiting.put(_Given(item))
                if ended.is_set():
                    return
        except BaseException as error:  # whoever takes the items is to hear of it
            last = error
        waiting.put(last)

    thread = threading.Thread(target=work, name="exhume-ahead", daemon=True)
    thread.start()
    try:
        while isinstance(found := waiting.get(), _Given):
            yield found.item
        if found is not None:
            raise found
    finally:
        ended.set()
        while thread.is_alive():
            with suppress(queue.Empty):
                waiting.get_nowait()
            thread.join(_AGAIN_S)
