"""Write the snapshots anew: `python -m tests.terminal` all of them, or those of the cases that are named."""

import sys

from tests.terminal.cases import CASES
from tests.terminal.snapshots import DIRECTORY, argparse_is_another, files, workplace


def main(names: list[str]) -> int:
    if why := argparse_is_another():
        sys.exit(why)
    if unknown := set(names) - {case.name for case in CASES}:
        sys.exit(f"there is no case {', '.join(sorted(unknown))}")
    chosen = [case for case in CASES if not names or case.name in names]
    DIRECTORY.mkdir(exist_ok=True)
    wanted: dict[str, str] = {}
    with workplace() as directory:
        for case in chosen:
            wanted |= files(case, directory)
    for path in DIRECTORY.iterdir():
        if path.name not in wanted and (not names or path.name.rsplit(".", 2)[0] in names):
            path.unlink()
    for name, text in wanted.items():
        (DIRECTORY / name).write_text(text, encoding="utf-8")
    print(f"{len(chosen)} cases, {len(wanted)} snapshots, {sum(len(text.encode()) for text in wanted.values()) / 1024:.0f} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
