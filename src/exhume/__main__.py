"""Entry point: `python -m exhume` and the `exhume` script."""

import gc
import os
import sys

# One BLAS thread: numpy starts in half the time, and we never multiply matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def run() -> None:
    # We make a few big tables and end: looking for cycles in them again and again would cost a third of the time. What stays
    # (--watch) collects by itself after each round.
    gc.disable()
    from exhume.cli.main import main

    try:
        sys.exit(main(sys.argv[1:]))
    finally:
        gc.freeze()  # nor is anything looked for at the end: the process goes, and all of it with it


if __name__ == "__main__":
    run()
