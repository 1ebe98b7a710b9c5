"""Opens a browser without telling everybody the token: what stands in the arguments of a program, every user can read. So the
browser gets the name of a file that only we can read, and that leads on to the address.
"""

import html
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from exhume.scratch import scratch

_PAGE = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={url}">
<title>exhume view</title>
<p><a href="{url}">exhume view</a></p>
"""


@contextmanager
def shown(url: str) -> Iterator[None]:
    """The file goes when we do. A browser that is kept from reading it (as snaps and flatpaks are) shows an error: the address
    was printed, too."""
    with ExitStack() as stack:
        with suppress(OSError):  # a full disk does not keep the address from being opened by hand
            place = stack.enter_context(scratch("view"))
            _open(os.path.join(place, "open.html"), url)
        yield


def _open(path: str, url: str) -> None:
    """Beside us: a browser may take its time to start. It waits for our answer, since we listen already."""
    import webbrowser

    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(_PAGE.format(url=html.escape(url)))
    threading.Thread(target=webbrowser.open, args=(f"file://{path}",), daemon=True).start()
