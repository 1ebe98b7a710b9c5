"""A browser for the tests of the page; they skip where there is none."""

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.views import served
from tests.render.told import told, write

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page

ARGUMENTS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="package")
def browser() -> Iterator["Browser"]:
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    for module in ("starlette", "uvicorn"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        yield opened
        opened.close()


@pytest.fixture
def context(browser: "Browser") -> Iterator["BrowserContext"]:
    made = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB", timezone_id="UTC", color_scheme="light")
    made.set_default_timeout(20_000)
    yield made
    made.close()


@pytest.fixture
def page(context: "BrowserContext") -> Iterator["Page"]:
    """A page on which no script may fail and no dialog may open."""
    made = context.new_page()
    wrong: list[str] = []

    def said(message: "ConsoleMessage") -> None:
        if message.type == "error":
            wrong.append(message.text)

    def asked(dialog: "Dialog") -> None:
        wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    made.on("pageerror", lambda error: wrong.append(str(error)))
    made.on("console", said)
    made.on("dialog", asked)
    yield made
    assert wrong == []


@pytest.fixture(scope="package")
def incident(browser: "Browser", tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a view on 100 s of 96 cores: core 39 held by kubelet from second 60 to 66.6."""
    path = write(tmp_path_factory.mktemp("incident") / "recording", told())
    with served(path) as address:
        yield address
