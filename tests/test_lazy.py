"""Public names of the subpackages: listed once, imported on first use."""

import ast
import importlib
import pickle
import pkgutil

import pytest

import volmar

ROOMS = ["volmar", *(f"volmar.{room.name}" for room in pkgutil.iter_modules(volmar.__path__))]


@pytest.mark.parametrize("room", ROOMS)
def test_every_listed_name_is_found(room):
    """The regular expression that reads the list finds the same names as the parser."""
    module = importlib.import_module(room)
    if "_homes" not in vars(module):
        return
    source = module.__spec__.loader.get_source(room)
    listed = {
        alias.asname
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert listed == set(module.__all__)
    for name in listed:
        assert getattr(module, name) is not None


def test_a_module_does_not_hide_the_function_of_its_name():
    importlib.import_module("volmar.evidence.label_test")
    assert callable(volmar.evidence.label_test)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        volmar.evidence.nonsense  # noqa: B018


@pytest.mark.parametrize("room", ["volmar", "volmar.evidence"])
def test_a_package_is_pickled_by_its_name(room):
    """cloudpickle sends functions of a notebook with the modules that they use."""
    module = importlib.import_module(room)
    assert pickle.loads(pickle.dumps(module)) is module
