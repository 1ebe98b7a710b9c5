"""Names of a recording as pseudonyms, for a bundle that leaves the house: the same name is the same pseudonym everywhere in it.

What a detector reads from a name stays: how deep a cgroup path is, which slice, that a part is a container's id, a pod's uid
or a number. What a person would recognise goes. A pseudonym is made with a key that is drawn anew for each bundle and kept
nowhere, so that nobody can try names until one fits. In running text every word goes that is not known to be harmless.
"""

import re
from collections.abc import Iterable
from typing import Final

from exhume.recording.spelling import DECIMAL, HEXADECIMAL, Spelling
from exhume.recording.well_known import (
    COMPONENTS,
    DEVICE,
    INTERRUPT,
    KERNEL_THREAD,
    MEASURES,
    SLICES,
    SUFFIXES,
    is_program,
    vocabulary,
)

# Numbers from this many digits on are somebody's: an account, a phone.
_ACCOUNT: Final = 9
# Placeholders of memcg_walk.path, and what a machine makes up: uids, ids, letters and digits mixed, numbers.
_MADE: Final = re.compile(
    r"(?P<place>\*|<id>|<uid>)"
    r"|(?P<address>(?<![0-9])[0-9]{1,3}(?:[-._][0-9]{1,3}){3}(?![0-9]))"  # ip-10-1-2-3 is what clouds call a host
    r"|(?P<uid>[0-9a-f]{8}(?P<dash>[-_])[0-9a-f]{4}(?P=dash)[0-9a-f]{4}(?P=dash)[0-9a-f]{4}(?P=dash)[0-9a-f]{12})"
    r"|(?P<id>(?<!po)[0-9a-f]{12,})"  # the d of pod is none of its digits
    r"|(?P<mixed>(?<![0-9A-Za-z])(?!pod[0-9a-f]{8})(?=[0-9]*[A-Za-z]+[0-9]|[0-9]+[A-Za-z])[0-9A-Za-z]{5,}(?![0-9A-Za-z]))"
    r"|(?P<number>(?<![0-9A-Za-z])[0-9]+(?![0-9A-Za-z]))"
)
_EDGES: Final = re.compile(r"([-_.:@ ]*)(.*?)([-_.:@ ]*)", re.DOTALL)
_UNIT: Final = re.compile(rf"(.+)\.({'|'.join(SUFFIXES)})", re.DOTALL)
# In running text, the first that fits: addresses, paths, words. What is between them is punctuation.
_TOKEN: Final = re.compile(
    r"(?P<pci>\b[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\b)"
    r"|(?P<time>\b(?:[0-9]{4}-[0-9]{2}-[0-9]{2}[T ])?[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?Z?\b(?!:))"
    r"|(?P<address>(?<![\w.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![\w.]*\w)"
    r"|(?<![\w:])(?:[0-9a-fA-F]{2}[:-]){5,}[0-9a-fA-F]{2}(?![\w:])"
    r"|(?<![\w:])(?=[0-9a-fA-F]*:[0-9a-fA-F:]*:)[0-9a-fA-F:.]{3,}(?![\w:]))"
    r"|(?P<path>(?<![\w])/[^\s\"'`<>,;()\[\]{}|=]+)"
    r"|(?P<word>[^\s\x21-\x2c/:;<=>?\[\]^`{|}~]+)"
)
_HARMLESS: Final = re.compile(
    rf"[-+]?[0-9]+(?:\.[0-9]+)?(?:{'|'.join(MEASURES)})?|0x[0-9a-fA-F]{{1,16}}|[-._+@]+|v?[0-9]+\.[0-9]+(?:\.[0-9]+)?[a-z]?"
)
_SYMBOL: Final = re.compile(r"[A-Za-z_][\w.$]*(?: \[\w+\])?", re.ASCII)


class Pseudonyms:
    """What each name has become. Ask for structured names first: running text then has the same pseudonyms for them."""

    def __init__(self, key: bytes, words: Iterable[str] = ()) -> None:
        """`words`: what the kernel's own lines are made of. They stay in running text even if a program is called the same."""
        self._spelling = Spelling(key)
        self._words = vocabulary()
        self._sure = {word.lower() for word in words}
        self._whole: dict[str, str] = {}
        self._kept: set[str] = set()

    @property
    def mapping(self) -> dict[str, str]:
        """Pseudonym to name, for who wants to read an answer."""
        return {pseudonym: name for name, pseudonym in sorted(self._whole.items()) if pseudonym != name}

    def keep(self, names: Iterable[str]) -> None:
        """Words that are nobody's: functions of the kernel, its release."""
        self._kept.update(names)

    def host(self, name: str) -> str:
        if not name:
            return ""
        made = self._remember(name, "host-" + self._spelling.letters(name.split(".", 1)[0]))
        self._whole.setdefault(name.split(".", 1)[0], made)
        return made

    def boot(self, boot_id: str) -> str:
        return self._remember(boot_id, self._component(boot_id, "boot"))

    def path(self, path: str) -> str:
        """A cgroup's path, or that of a file, part by part."""
        if path in ("", "/"):
            return path
        made = "/".join(part if part in ("", ".", "..") else self.part(part) for part in path.split("/"))
        return self._remember(path, made)

    def part(self, part: str) -> str:
        if part in COMPONENTS or SLICES.fullmatch(part):
            return part
        if match := _UNIT.fullmatch(part):
            return self.unit(part) if not part.startswith("kubepods") else f"{self._component(match[1], 'group')}.{match[2]}"
        return self._component(part, "group")

    def unit(self, unit: str) -> str:
        if not unit or unit in COMPONENTS or SLICES.fullmatch(unit):
            return unit
        match = _UNIT.fullmatch(unit)
        stem, suffix = (match[1], f".{match[2]}") if match else (unit, "")
        name, at, instance = stem.partition("@")
        made = self._component(name, "unit") + at + (self._component(instance, "instance") if instance else "") + suffix
        return self._remember(unit, made)

    def pod(self, pod: str) -> str:
        """Its uid, or namespace and name."""
        return self._remember(pod, "/".join(self._component(part, "pod") for part in pod.split("/"))) if pod else ""

    def container(self, container: str) -> str:
        return self._remember(container, self._component(container, "container")) if container else ""

    def image(self, image: str) -> str:
        return self._remember(image, "image-" + self._spelling.letters(image)) if image else ""

    def program(self, comm: str) -> str:
        """A process or a thread. The kernel's own keep their names, and programs that everybody has."""
        if not comm or is_program(comm):
            return comm
        if match := KERNEL_THREAD.fullmatch(comm):
            begin, rest = match["begin"], match["rest"] or ""
            device, dash, number = rest.rpartition("-")
            of = self.device(device) if device else ""
            return self._remember(comm, begin + (of + dash + number if dash and number.isdecimal() else self.text(rest)))
        return self._remember(comm, self._component(comm, "process"))

    def device(self, device: str) -> str:
        """Of the kernel's naming schemes: as it is. One that somebody named, or that has a MAC address in it, is not."""
        if not device or DEVICE.fullmatch(device):
            return device
        return self._remember(device, "dev" + self._spelling.letters(device))

    def interrupt(self, action: str) -> str:
        """`eth0-Tx-Rx-5`: which device's queue it is must still be seen."""
        match = INTERRUPT.fullmatch(action)
        if match is None or match["known"]:
            return self.device(action) if match is None else action
        return match["driver"] + self.device(match["device"]) + match["queue"]

    def function(self, name: str) -> str:
        """Of user space."""
        return self._remember(name, "fn_" + self._spelling.letters(name)) if name and not name.startswith("[") else name

    def kernel_function(self, name: str) -> str:
        """As it is; but a BPF program is called what its owner called it (bpf_prog_TAG_NAME, kernel/bpf/core.c)."""
        if name.startswith("bpf_prog_"):
            return self._remember(name, "bpf_prog_" + self._spelling.letters(name))
        if not name or name.startswith("[") or _SYMBOL.fullmatch(name):
            return name
        return self._remember(name, "fn_" + self._spelling.letters(name))

    def module(self, module: str, kernel: bool) -> str:
        if not module or (module.startswith("[") and module.endswith("]") and " " not in module):
            return module
        if kernel and (module.startswith(("/lib/modules/", "/usr/lib/modules/")) or _SYMBOL.fullmatch(module)):
            return module
        directory, slash, name = module.rpartition("/")
        return self._remember(
            module, (self.path(directory) if directory else "") + slash + "module-" + self._spelling.letters(name)
        )

    def functions(self, stack: str) -> str:
        """Functions of the kernel, joined by semicolons; in running text they stay from then on."""
        made = list(map(self.kernel_function, stack.split(";")))
        self.keep(made)
        return ";".join(made)

    def text(self, text: str) -> str:
        """Running text: names that are known become what they have become, and so does every word that nobody vouches for."""
        if text in self._whole:
            return self._whole[text]
        return _TOKEN.sub(self._token, text)

    def _token(self, match: re.Match[str]) -> str:
        word, kind = match[0], match.lastgroup
        if kind in ("pci", "time"):
            return word
        if kind == "address":
            return self._remember(word, "address-" + self._spelling.letters(word))
        if kind == "path":
            bare = word.rstrip(".:")
            return self._in_text(bare) + word[len(bare) :]
        bare = word.rstrip(".-_@")
        return self._word(bare) + word[len(bare) :] if bare else word

    def _in_text(self, path: str) -> str:
        known = self._whole.get(path)
        return known if known is not None else self.path(path)

    def _word(self, word: str) -> str:
        if word.lower() in self._sure:
            return word
        if (known := self._whole.get(word)) is not None:
            return known
        if _HARMLESS.fullmatch(word) or word in self._kept or word in COMPONENTS or is_program(word):
            return word
        if word.lower() in self._words or DEVICE.fullmatch(word):
            return word
        if _UNIT.fullmatch(word):
            return self.unit(word)
        return self._remember(word, self._component(word, "word"))

    def _component(self, text: str, prefix: str) -> str:
        """A name without what a person would recognise: numbers stay, what a machine made up is made up anew, in its form."""
        if not text or is_program(text):
            return text
        made, end = [], 0
        for match in _MADE.finditer(text):
            made.append(self._name(text[end : match.start()], prefix))
            made.append(self._made_up(match))
            end = match.end()
        made.append(self._name(text[end:], prefix))
        return "".join(made)

    def _name(self, text: str, prefix: str) -> str:
        edges = _EDGES.fullmatch(text)
        if not text or edges is None or not edges[2] or edges[2] in COMPONENTS or is_program(edges[2]):
            return text
        return f"{edges[1]}{prefix}-{self._spelling.letters(edges[2])}{edges[3]}"

    def _made_up(self, match: re.Match[str]) -> str:
        text, kind = match[0], match.lastgroup
        if kind == "place" or (kind == "number" and len(text) < _ACCOUNT):
            return text
        if kind == "address":
            return self._spelling.letters(text)
        if kind == "uid":
            digits = self._spelling.digits(text.replace("_", "").replace("-", ""), HEXADECIMAL)
            return match["dash"].join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        if kind == "mixed":
            return self._spelling.mixed(text)
        digits = self._spelling.digits(text, HEXADECIMAL if kind == "id" else DECIMAL)
        if kind == "id":
            self._whole.setdefault(text[:12], digits[:12])  # as people and messages shorten it
        return digits

    def _remember(self, name: str, pseudonym: str) -> str:
        self._whole[name] = pseudonym
        return pseudonym
