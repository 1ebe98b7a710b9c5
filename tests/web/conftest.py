"""One small recording for all tests of the server: four cores, core 3 held by kubelet from the 5th to the 7th second."""

import pytest

from tests.render.made import write
from tests.web.serving import Browser, browser, view


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("web") / "recording")


@pytest.fixture(scope="session")
def user(recorded: str) -> Browser:
    """Somebody who opened the address that was printed."""
    return browser(view(recorded))
