"""Regenerates the golden files, all or those named. Read the diff before you commit it: each line is a changed judgement."""

import sys
from pathlib import Path

from tests.golden.cases import FILES
from tests.golden.dump import dumps

HERE = Path(__file__).parent


def main(names: list[str]) -> None:
    for name in names or FILES:
        (HERE / f"{name}.json").write_text(dumps(FILES[name]()))


if __name__ == "__main__":
    main(sys.argv[1:])
