"""Frozen dataclasses that are cheap to define: `@record(frozen=True, slots=True, kw_only=True)`.

The standard decorator compiles seven methods for every class, 1.2 ms of CPU for one with fifteen fields. exhume defines some
eighty classes of facts and reasons, and a check imports all of them: that was 50 ms, a tenth of its cost. A record shares one
set of methods instead, for 0.15 ms a class; making an instance takes some microseconds longer, and there are few. For type
checkers, `dataclasses.fields` and `dataclasses.replace` it is an ordinary dataclass. See docs/decisions/records.md.
"""

from typing import TYPE_CHECKING

__all__ = ["record"]

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:
    from dataclasses import MISSING, FrozenInstanceError, dataclass, fields

    def record(*, frozen, slots, kw_only=False):
        """`frozen` and `slots` are for the reader and the type checker: a record always is."""

        def define(cls):
            made = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(cls)
            made.__record__ = tuple((one.name, one.default) for one in fields(made))
            for name, method in _METHODS.items():
                setattr(made, name, method)
            return made

        return define

    def _init(self, *positional, **given):
        given.update(zip(self.__match_args__, positional, strict=False))
        for name, default in self.__record__:
            value = given.pop(name, default)
            if value is MISSING:
                raise TypeError(f"{type(self).__name__} needs {name}")
            object.__setattr__(self, name, value)
        if given or len(positional) > len(self.__match_args__):
            raise TypeError(f"{type(self).__name__} has no {', '.join(given) or 'so many fields'}")

    def _values(self):
        return tuple(getattr(self, name) for name, _ in self.__record__)

    def _eq(self, other):
        return _values(self) == _values(other) if type(self) is type(other) else NotImplemented

    def _hash(self):
        return hash(_values(self))

    def _repr(self):
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name, _ in self.__record__)
        return f"{type(self).__qualname__}({inside})"

    def _refuse(self, name, value=None):
        raise FrozenInstanceError(f"cannot change field {name!r}")

    def _reduce(self):
        return _made, (type(self), dict(zip((name for name, _ in self.__record__), _values(self), strict=True)))

    def _made(cls, given):
        return cls(**given)

    _METHODS = {
        "__init__": _init,
        "__eq__": _eq,
        "__hash__": _hash,
        "__repr__": _repr,
        "__setattr__": _refuse,
        "__delattr__": _refuse,
        "__reduce__": _reduce,
    }
