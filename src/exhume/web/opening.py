"""A view that is being made while the page is loaded: what answers wait for, and what can be answered before."""

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exhume.web.view import View


class Opening:
    """Neither future is cancelled by a request that is given up."""

    def __init__(self) -> None:
        self.view: Future[View] = Future()
        self.early: Future[bytes | None] = Future()
        """What answers the page's first question while there is no view; None where that needs one."""
        self.drawn = threading.Event()
        """Something else was asked than the page's first question: what answers that is on the screen by then."""
        for each in (self.view, self.early):
            each.set_running_or_notify_cancel()

    @classmethod
    def done(cls, view: "View") -> "Opening":
        """One that was made before anybody asked."""
        opening = cls()
        opening.early.set_result(None)
        opening.view.set_result(view)
        return opening

    def failed(self, error: BaseException) -> None:
        if not self.early.done():
            self.early.set_result(None)
        self.view.set_exception(error)

    def stop(self) -> None:
        if self.view.done() and self.view.exception() is None:
            self.view.result().stop()
