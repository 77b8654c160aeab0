"""Packages whose public names are imported when they are first used."""

import re
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

_IMPORT = re.compile(r"^    from (\S+) import \(?\s*(\w+) as \w+", flags=re.MULTILINE)


class _LazyPackage(ModuleType):
    """A package that imports a public name from its module on first access."""

    _homes: dict[str, str]

    def __getattr__(self, name: str) -> Any:
        homes = self.__dict__["_homes"]
        if name not in homes:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing a submodule must not hide the public function of the same name.
        if name not in self._homes or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __reduce__(self) -> Any:
        # For functions of a notebook that use a package and are sent to other processes.
        return import_module, (self.__name__,)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *self._homes})


def attach(package: str) -> None:
    """Make the public names of a package importable on first use, and set ``__all__``.

    The names are those that the package imports under ``if TYPE_CHECKING``, one ``from module
    import name as name`` per name. Type checkers read the same statements.
    """
    module = sys.modules[package]
    source = module.__spec__.loader.get_source(package)  # type: ignore[union-attr]
    homes = {name: home for home, name in _IMPORT.findall(source)}
    module.__dict__.update(_homes=homes, __all__=sorted(homes))
    module.__class__ = _LazyPackage
