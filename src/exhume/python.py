"""How exhume starts Python: the one place that does."""

import sys


def python(*arguments: str) -> list[str]:
    """The command of a Python child: this interpreter with nothing of the current directory in its module path.

    Isolated (-I: no PYTHON* variables, no user site-packages) when this process is, as under the launcher of a clone. Otherwise
    -P only: a package from `pip install --user` or PYTHONPATH must be found by the children as well.
    """
    return [sys.executable, "-I" if sys.flags.isolated else "-P", *arguments]
