"""Imports exhume with every display string replaced by random text, and judges all golden cases: no judgement may change.

A display string is any string constant or f-string with a space in it; identifiers have none. Each occurrence becomes another
text, so that code which compares, cuts or matches a sentence anywhere gets a different answer. Names of subjects are data: they
are made in diagnosis/findings/subjects.py, which is left as it is.

    python -m tests.golden.scramble SEED [FILE...]      prints what changed; exit 1 if anything did
"""

import ast
import importlib.abc
import importlib.machinery
import random
import string
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType

SCRAMBLED = (
    "exhume.diagnosis.",
    "exhume.render.",
    "exhume.recorder.",
    "exhume.remedy.plan",
    "exhume.remedy.criteria",
    "exhume.remedy.proof",
    "exhume.remedy.whose",
    "exhume.recording.source_state",
    "exhume.agent.gathering",
)
# Names of subjects, and of the kernel.
KEPT = (
    "exhume.diagnosis.findings.subjects",
    "exhume.diagnosis.findings.kernel_functions",
)


class Scrambler(ast.NodeTransformer):
    def __init__(self, randomness: random.Random) -> None:
        self._random = randomness
        self.count = 0

    def _text(self, old: str) -> str:
        """Other letters; what is no letter stays, so that lengths, blanks and punctuation look as they did."""
        self.count += 1
        return "".join(self._random.choice(string.ascii_lowercase) if each.isalpha() else each for each in old)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and " " in node.value.strip():
            return ast.copy_location(ast.Constant(self._text(node.value)), node)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        prose = any(isinstance(part, ast.Constant) and " " in str(part.value) for part in node.values)
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                part.value = self.visit(part.value)
            elif isinstance(part, ast.Constant) and prose:
                part.value = self._text(str(part.value))
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """Docstrings stay."""
        return node if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return node if isinstance(node.value, ast.Name) and node.value.id == "Literal" else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Lists of names (`"a b".split()`), patterns and separators are no prose."""
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in ("split", "join", "partition"):
            node.args = [self.visit(argument) for argument in node.args] if function.attr == "join" else node.args
            return node
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "re":
            return node
        if isinstance(function, ast.Name) and function.id == "_named":
            return node
        return self.generic_visit(node)


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, seed: int) -> None:
        super().__init__(name, path)
        self._seed = seed

    def get_code(self, fullname: str) -> CodeType | None:
        tree = ast.parse(self.get_data(self.path))
        scrambler = Scrambler(random.Random(f"{self._seed} {fullname}"))
        tree = ast.fix_missing_locations(scrambler.visit(tree))
        Finder.count += scrambler.count
        return compile(tree, self.path, "exec", dont_inherit=True)


class Finder(importlib.abc.MetaPathFinder):
    count = 0

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if (not f"{fullname}.".startswith(SCRAMBLED) and not fullname.startswith(SCRAMBLED)) or fullname in KEPT:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
            spec.loader = _Loader(fullname, spec.origin, self._seed)
        return spec


def main(seed: int, files: list[str]) -> int:
    assert not any(name.startswith(SCRAMBLED) for name in sys.modules)
    sys.meta_path.insert(0, Finder(seed))
    from tests.golden import cases
    from tests.golden.dump import changes
    from tests.golden.test_golden import kept

    code = 0
    for file in files or list(cases.FILES):
        if changed := changes(file, kept(file), cases.FILES[file](), {}):
            code = 1
            print(changed)
    print(f"{Finder.count} strings were scrambled")
    return code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
