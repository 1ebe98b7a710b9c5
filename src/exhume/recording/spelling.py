"""How pseudonyms are spelt: made from a name and a key, so that nobody without the key can tell which name it was."""

from collections.abc import Callable
from hashlib import blake2b
from typing import Final

HEXADECIMAL: Final = "0123456789abcdef"
DECIMAL: Final = "0123456789"
# No vowels and no digits: a pseudonym spells nothing, and is not taken for a number or an id that a machine made up.
_LETTERS: Final = "ghjkmnpqrstvwxyz"
_SHORTEST: Final = 4
_PATIENCE: Final = 100


class Spelling:
    """The same for the same name, never the same for two."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._given: dict[tuple[str, int], str] = {}
        self._taken: set[str] = set()

    def letters(self, text: str) -> str:
        """Four of them; more where those are taken."""
        return self._unique(text, 0, lambda hashed: _spelt(hashed, _LETTERS))

    def digits(self, text: str, alphabet: str) -> str:
        """As many as the text has."""
        return self._unique(text, len(text), lambda hashed: _spelt(hashed, alphabet))

    def mixed(self, text: str) -> str:
        """As many letters and digits, some of each: what looks made up by a machine must go on looking so."""
        return self._unique(text, len(text), lambda hashed: "q7" + _spelt(hashed, _LETTERS + DECIMAL)[2:])

    def _unique(self, text: str, length: int, spell: Callable[[bytes], str]) -> str:
        if (given := self._given.get((text, length))) is not None:
            return given
        attempt, tried = 0, text
        while tried == text or tried in self._taken:
            # Of a given length all may be taken: then it is one longer rather than somebody else's.
            wanted = length + attempt // _PATIENCE if length else _SHORTEST + 2 * attempt
            tried = spell(_hashed(self._key, f"{attempt}:{text}", wanted))
            attempt += 1
        self._taken.add(tried)
        self._given[text, length] = tried
        return tried


def _hashed(key: bytes, text: str, length: int) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")
    blocks = (blake2b(raw, key=key, salt=block.to_bytes(16, "big")).digest() for block in range(length // 64 + 1))
    return b"".join(blocks)[:length]


def _spelt(hashed: bytes, alphabet: str) -> str:
    return "".join(alphabet[byte % len(alphabet)] for byte in hashed)
