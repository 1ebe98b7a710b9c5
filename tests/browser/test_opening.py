"""The file that exhume view gives a browser instead of the address, and what comes after it."""

import threading
import webbrowser
from typing import TYPE_CHECKING

import pytest

from exhume.web.showing import shown
from tests.browser.views import settled

if TYPE_CHECKING:
    from playwright.sync_api import Page


def test_the_file_leads_to_the_page_which_can_be_loaded_again(
    page: "Page", incident: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []
    came = threading.Event()

    def open_(address: str) -> None:
        given.append(address)
        came.set()

    monkeypatch.setattr(webbrowser, "open", open_)
    with shown(incident):
        assert came.wait(120)
        page.goto(given[0])
        page.wait_for_url("http://127.0.0.1:*/**")
        settled(page)
    for _ in range(2):
        assert "token" not in page.url
        assert page.evaluate("fetch('api/about').then((answer) => answer.status)") == 200
        page.reload()  # the cookie is enough, although the page was come to from elsewhere
        settled(page)
