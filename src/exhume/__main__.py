"""Entry point: `python -m exhume` and the `exhume` script."""

import gc
import os
import sys

# One BLAS thread: numpy starts in half the time, and we never multiply matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def run() -> None:
    # We make a few big tables and end: looking for cycles in them again and again would cost a fifth of the time.
    gc.set_threshold(200_000, 20, 20)
    from exhume.cli.main import main

    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    run()
