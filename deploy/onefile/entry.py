"""Where the single executable begins: exhume itself, or the Python that exhume starts its own children with.

exhume runs parts of itself as `sys.executable -m MODULE` (reading symbols, verdicts of the flight recorder) and keeps them on a
leash by `sys.executable -I -S -c CODE`. Inside the one file sys.executable is that file, so it has to understand both.
"""

import runpy
import sys

_ALONE = ("-I", "-P", "-S", "-E", "-B", "-u")


def main() -> int:
    words = sys.argv[1:]
    while words and words[0] in _ALONE:
        del words[0]
    if words[:1] == ["-c"] and len(words) > 1:
        sys.argv = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
        return 0
    if words[:1] == ["-m"] and len(words) > 1:
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return 0
    from exhume.__main__ import run

    run()  # ends the process with its exit code
    return 0


if __name__ == "__main__":
    sys.exit(main())
