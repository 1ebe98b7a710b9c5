"""Entry point: `python -m exhume` and the `exhume` script."""

import os
import sys

# One BLAS thread: numpy starts in half the time, and we never multiply matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def run() -> None:
    from exhume.cli.main import main

    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    run()
