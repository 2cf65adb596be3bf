"""The public names for type checkers are those that Python loads."""

import ast
from pathlib import Path

import iris


def test_type_checkers_find_each_public_name_in_the_module_that_is_loaded() -> None:
    """Python uses the table of `iris/__init__.py`, and type checkers use `iris/__init__.pyi`."""
    stub = ast.parse((Path(iris.__file__).parent / "__init__.pyi").read_text())
    imported = {
        alias.asname: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    assert imported == iris._MODULES
