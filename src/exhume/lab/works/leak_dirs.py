"""A runtime that makes a cgroup for every container and forgets to remove it: the directory stays, with nobody in it."""

import os
import secrets
import time

from exhume.lab.work import call, say


def main(groups: str, first: str, pause_s: str, name: str) -> None:
    """`first` of them as fast as can be, as if it had gone on for weeks; then one each `pause_s`."""
    call(name)
    count = 0
    while count < int(first):
        os.mkdir(_container(groups))
        count += 1
    say(leaked=count)
    while True:
        time.sleep(float(pause_s))
        os.mkdir(_container(groups))
        count += 1
        say(leaked=count)


def _container(groups: str) -> str:
    """Named as CRI-O names a container's."""
    return f"{groups}/crio-{secrets.token_hex(32)}.scope"
