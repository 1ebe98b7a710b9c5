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
    try:
        import signal

        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # the launcher of a clone holds Ctrl-C back until here
        from exhume.cli.main import main

        code = main(sys.argv[1:])
    except KeyboardInterrupt:  # while it was still importing
        code = 130
    finally:
        gc.freeze()  # nor is anything looked for at the end: the process goes, and all of it with it
    sys.exit(code)


if __name__ == "__main__":
    run()
