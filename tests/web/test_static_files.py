"""The files of the page: types, and that a browser's copy is asked about and not sent again."""

from exhume.web.static_files import table
from tests.web.serving import Browser


def test_a_file_has_its_type_and_its_tag(user: Browser) -> None:
    for path, file in table().items():
        answer = user.get(path)
        assert answer.status == 200
        assert answer.content == file.content
        assert answer.headers["etag"] == file.etag
        assert answer.headers["cache-control"] == "no-cache"
        if path.endswith(".js"):
            assert answer.headers["content-type"] == "text/javascript; charset=utf-8"


def test_what_a_browser_has_is_not_sent_again(user: Browser) -> None:
    path = next(iter(table()))
    etag = user.get(path).headers["etag"]
    answer = user.get(path, headers={"If-None-Match": f'W/"x", {etag}'})
    assert (answer.status, answer.content) == (304, b"")
    assert user.get(path, headers={"If-None-Match": '"other"'}).status == 200


def test_head_tells_the_length_and_sends_nothing(user: Browser) -> None:
    for path in (next(iter(table())), "/api/about", "/api/flame", "/api/export?format=folded", "/nothing"):
        whole, head = user.get(path), user.ask("HEAD", path)
        assert head.status == whole.status
        assert head.content == b""
        assert head.headers["content-length"] == str(len(whole.content))
