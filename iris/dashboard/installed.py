"""Whether the dashboard can be served. Imports nothing that the dashboard needs."""

from importlib.util import find_spec

#: The command that installs the packages that the dashboard needs.
INSTALL = "pip install 'iris-temporal[dashboard]'"
_NEEDED = ("starlette", "uvicorn", "jinja2")


def is_installed() -> bool:
    """Returns whether the packages of the extra `dashboard` are installed in this environment."""
    return all(find_spec(name) is not None for name in _NEEDED)
