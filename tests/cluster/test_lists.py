"""Lists by pages, when a page has expired: etcd forgets old states after five minutes, and a large cluster takes its time."""

from typing import Any

import pytest

from exhume.cluster.client import Client
from exhume.cluster.kubeconfig import Access
from exhume.cluster.replies import ApiError, refusal


class Paged(Client):
    """Answers with `pages`, one after the other; a number is a refusal with that status."""

    def __init__(self, *pages: dict[str, Any] | ApiError) -> None:
        super().__init__(Access("https://x.test"))
        self.pages = list(pages)
        self.asked: list[str] = []

    def request(self, method: str, path: str, *_: object, query: Any = None, **__: object) -> dict[str, Any]:
        assert query["limit"] == "500"
        self.asked.append(query.get("continue", ""))
        page = self.pages.pop(0)
        if isinstance(page, ApiError):
            raise page
        return page


def page(*names: str, more: str = "") -> dict[str, Any]:
    return {"metadata": {"continue": more}, "items": [{"name": name} for name in names]}


def expired(more: str) -> ApiError:
    """As the API server has it (apiserver, storage/errors: NewResourceExpired with an inconsistent continuation)."""
    told = {"reason": "Expired", "message": "The provided continue parameter is too old", "metadata": {"continue": more}}
    return refusal("GET", "/api/v1/pods", 410, told, None)


def test_a_page_that_has_expired_goes_on_in_a_later_state_and_none_comes_twice() -> None:
    client = Paged(page("a", "b", more="old"), expired("new"), page("c", more="newer"), page("d"))
    assert [one["name"] for one in client.list("/api/v1/pods")] == ["a", "b", "c", "d"]
    assert client.asked == ["", "old", "new", "newer"]


@pytest.mark.parametrize("more", ["", "old"])
def test_one_that_cannot_go_on_is_said_and_is_no_shorter_list(more: str) -> None:
    client = Paged(page("a", more="old"), expired(more))
    with pytest.raises(ApiError, match="too old"):
        list(client.list("/api/v1/pods"))
