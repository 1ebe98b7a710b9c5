"""Which strings an expression of the sources can be, by their syntax trees: enough for the names that evidence has.

A name is followed to what it is bound to: a constant (imported ones, too), a loop over a table, a parameter (by all calls).
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"
Function = ast.FunctionDef | ast.Lambda
ANY = "\0"
"""Stands for a part of a name that is not known."""


@dataclass(frozen=True)
class Module:
    path: str
    tree: ast.Module

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """What it is in, from the inside out."""
        while (above := self.parents.get(node)) is not None:
            yield above
            node = above

    def function(self, node: ast.AST) -> Function | None:
        return next((above for above in self.around(node) if isinstance(above, Function)), None)


def modules(*packages: str) -> list[Module]:
    found = sorted(path for package in packages for path in (SOURCES / package).rglob("*.py"))
    return [Module(str(path.relative_to(SOURCES)), ast.parse(path.read_text())) for path in found]


@dataclass
class Strings:
    modules: list[Module]
    unknown: list[str] = field(default_factory=list)
    """Where an expression is that could not be followed."""

    def of(self, node: ast.expr, module: Module) -> set[str]:
        match node:
            case ast.Constant(value=str(text)):
                return {text}
            case ast.JoinedStr(values=values):
                return self._joined(values, module)
            case ast.IfExp(body=body, orelse=other):
                return self.of(body, module) | self.of(other, module)
            case ast.NamedExpr(value=value):
                return self.of(value, module)
            case ast.Name():
                return self._named(node, module)
            case ast.Attribute(attr=attr):
                return self._property(attr)
            case ast.Call(func=ast.Attribute(attr="get", value=table)):
                return self._parts(table, 1, module)
        return self._not_known(node, module)

    def _not_known(self, node: ast.expr, module: Module) -> set[str]:
        self.unknown.append(f"{module.path}:{node.lineno}: {ast.unparse(node)}")
        return set()

    def _joined(self, values: Iterable[ast.expr], module: Module) -> set[str]:
        texts = {""}
        for value in values:
            before = len(self.unknown)
            more = self.of(value.value if isinstance(value, ast.FormattedValue) else value, module) or {ANY}
            if more == {ANY}:
                del self.unknown[before:]
            texts = {text + part for text in texts for part in more}
        return texts

    def _property(self, name: str) -> set[str]:
        """Of a property of some class: what it returns."""
        found: set[str] = set()
        for module in self.modules:
            for node in ast.walk(module.tree):
                if isinstance(node, ast.FunctionDef) and node.name == name and _is_property(node):
                    for each in ast.walk(node):
                        if isinstance(each, ast.Return) and isinstance(each.value, ast.IfExp | ast.Constant):
                            found |= self.of(each.value, module)
        return found

    def _named(self, name: ast.Name, module: Module) -> set[str]:
        for scope in module.around(name):
            if isinstance(scope, ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp):
                for generator in scope.generators:
                    if (at := _position(generator.target, name.id)) is not None:
                        return self._parts(generator.iter, at, module)
            if isinstance(scope, Function):
                places = [*scope.args.posonlyargs, *scope.args.args]
                for i, argument in enumerate(places):
                    if argument.arg == name.id and isinstance(scope, ast.FunctionDef):
                        return self._passed(scope.name, i, name.id)
            if isinstance(scope, Function | ast.Module):
                found = [each for each in self._bound(scope, name.id, module) if each]
                if found:
                    return set().union(*found)
        imported = self._imported(name.id, module)
        return self.of(*imported) if imported is not None else self._not_known(name, module)

    def _bound(self, scope: Function | ast.Module, name: str, module: Module) -> Iterator[set[str]]:
        for node in ast.walk(scope):
            if isinstance(scope, ast.Module) and module.function(node) is not None:
                continue
            if isinstance(node, ast.For) and (at := _position(node.target, name)) is not None:
                yield self._parts(node.iter, at, module)
            elif isinstance(node, ast.NamedExpr) and node.target.id == name:
                yield self.of(node.value, module)
            for target, value in _assigned(node):
                if (at := _position(target, name)) is not None:
                    yield self.of(value, module) if at < 0 else self._parts(value, -1, module, only=at)

    def _passed(self, function: str, at: int, name: str) -> set[str]:
        """What callers give for a parameter."""
        found: set[str] = set()
        for module in self.modules:
            for node in ast.walk(module.tree):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == function:
                    given = [keyword.value for keyword in node.keywords if keyword.arg == name] or node.args[at : at + 1]
                    for value in given:
                        found |= self.of(value, module)
        return found

    def _imported(self, name: str, module: Module) -> tuple[ast.expr, Module] | None:
        """The value of a constant of another module, and that module."""
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and any((each.asname or each.name) == name for each in node.names):
                path = SOURCES / f"{(node.module or '').replace('.', '/')}.py"
                if path.is_file():
                    other = Module(str(path.relative_to(SOURCES)), ast.parse(path.read_text()))
                    for each in other.tree.body:
                        for target, value in _assigned(each):
                            if _position(target, name) == -1:
                                return value, other
        return None

    def _parts(self, of: ast.expr, at: int, module: Module, only: int | None = None) -> set[str]:
        """What the elements of something iterable are: all of each, or what is in one place of it."""
        match of:
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                found: set[str] = set()
                for element in elements if only is None else elements[only : only + 1]:
                    found |= self.of(element if at < 0 else _place(element, at), module)
                return found
            case ast.Dict(keys=keys, values=values):
                some = values if at == 1 else [key for key in keys if key is not None]
                return set().union(*(self.of(each, module) for each in some))
            case ast.Call(func=ast.Name(id="zip"), args=arguments):
                return self._parts(arguments[at], -1, module)
            case ast.Call(func=ast.Name(id="sorted" | "list" | "tuple"), args=[inner, *_]):
                return self._parts(inner, at, module)
            case ast.Call(func=ast.Attribute(attr="items", value=table)):
                return self._parts(table, at, module)
            case ast.Name(id=name):
                scopes = [each for each in module.around(of) if isinstance(each, Function | ast.Module)]
                for scope in scopes:
                    for node in ast.walk(scope):
                        for target, value in _assigned(node):
                            if _position(target, name) == -1:
                                return self._parts(value, at, module)
                imported = self._imported(name, module)
                if imported is not None:
                    return self._parts(imported[0], at, imported[1])
        return self._not_known(of, module)


def _is_property(node: ast.FunctionDef) -> bool:
    return any(getattr(each, "id", "") in ("property", "cached_property") for each in node.decorator_list)


def _assigned(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.Assign):
        return [(target, node.value) for target in node.targets]
    return [(node.target, node.value)] if isinstance(node, ast.AnnAssign) and node.value is not None else []


def _position(target: ast.expr, name: str) -> int | None:
    """Where a name is in what is assigned to: -1 if it is all of it, None if it is not there."""
    if isinstance(target, ast.Name):
        return -1 if target.id == name else None
    if isinstance(target, ast.Tuple):
        return next((i for i, each in enumerate(target.elts) if isinstance(each, ast.Name) and each.id == name), None)
    return None


def _place(element: ast.expr, at: int) -> ast.expr:
    return element.elts[at] if isinstance(element, ast.Tuple | ast.List) and at < len(element.elts) else element


def pattern(name: str) -> re.Pattern[str]:
    return re.compile(".+".join(re.escape(part) for part in name.split(ANY)))
