"""`python -m tests.deploy.named HOST PID PATH DEVICE INODE OFFSET`: the name of a function of a running program, as JSON.

Asked of the symbol reader as the recorder asks, with the capabilities that this process was started with. `left` are the
children that still run after they were closed.
"""

import json
import os
import sys

from exhume.host.root import Root
from exhume.recording.source_state import sentences
from exhume.sources.sampling.user_symbols import Image, UserSymbols


def main(host: str, pid: str, path: str, device: str, inode: str, offset: str) -> None:
    number = int(device)
    image = Image("elf", os.fsencode(path), (os.major(number), os.minor(number)), int(inode))
    symbols = UserSymbols(Root(host))
    symbols.ask(1, image, [int(pid)], [int(offset)])
    names = [function.name for function in symbols.answers(30)]
    children = [child.process.pid for child in symbols._children.both] if symbols._children is not None else []
    reason = sentences(symbols.reasons)
    symbols.close()
    left = [child for child in children if os.path.exists(f"/proc/{child}")]
    json.dump({"names": names, "reason": reason, "left": left}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
