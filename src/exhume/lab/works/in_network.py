"""Enters a network namespace, then is another program."""

import importlib
import os

from exhume.lab.work import PACKAGE

_NEWNET = 0x40000000  # CLONE_NEWNET


def main(namespace: str, what: str, *arguments: str) -> None:
    import ctypes

    fd = os.open(namespace, os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(fd, _NEWNET):
        raise OSError(ctypes.get_errno(), f"setns {namespace}")
    os.close(fd)
    importlib.import_module(f"{PACKAGE}.{what.replace('-', '_')}").main(*arguments)
