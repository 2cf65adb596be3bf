"""Python projects without a `[project]` table: what their `setup.py` and `setup.cfg` declare.

`uv pip install` installs such a project, because `uv sync` reads only `[project]`.
"""

import re
from collections.abc import Container, Sequence

PYPROJECT, SCRIPT, CONFIG = "pyproject.toml", "setup.py", "setup.cfg"
#: The files of package managers that Iris does not support, each with the name of the manager. Iris
#: does not read these files.
UNREAD = {
    "environment.yml": "conda",
    "environment.yaml": "conda",
    "Pipfile": "Pipenv",
    "pixi.toml": "pixi",
}
#: Matches the names of modules that a package's `setup.py` imports. A `setup.py` that imports none
#: of them is another program.
_BUILDERS = re.compile(r"\b(?:setuptools|distutils|skbuild)\b")
#: The sections and keys that show that a `setup.cfg` declares a package. Many files with this name
#: only configure a linter.
_DECLARES = (
    ("metadata", "name"),
    ("options", "install_requires"),
    ("options", "packages"),
    ("options", "py_modules"),
)
#: Matches a text in build files which shows that the build reads the version from git.
_BY_SCM = re.compile(r"\bsetuptools[_-]scm\b|\buse_scm_version\b")
_BY_PBR = re.compile(r"\bpbr\b")
#: Matches the name of a project in its `setup.py`, if the name is a plain string.
_NAME = re.compile(r"\bname\s*=\s*[\"']([A-Za-z0-9][A-Za-z0-9._-]*)[\"']")


def installs_itself(script: str, config: str, *, has_pyproject: bool) -> bool:
    """Returns whether `uv pip install .` installs the directory's package.

    Args:
        script: the text of `setup.py`; empty if there is none.
        config: the text of `setup.cfg`; empty if there is none.
        has_pyproject: whether the directory has a `pyproject.toml`, which then has no `[project]`.
    """
    return _is_setup_script(script) or (has_pyproject and _declares_a_package(config))


def lacks_a_build(script: str, config: str, *, has_pyproject: bool) -> bool:
    """Returns whether `setup.cfg` declares a package that no tool installs, because no file says
    how to build it. The arguments are those of `installs_itself`.
    """
    return not (has_pyproject or _is_setup_script(script)) and _declares_a_package(config)


def cannot_build(place: object) -> str:
    """Returns the error for a directory for which `lacks_a_build` is true."""
    return (
        f"{place} has a {CONFIG}, but neither a {SCRIPT} nor a {PYPROJECT}, so no tool installs it;"
        f" add an empty {PYPROJECT} beside it, or use --no-sync"
    )


def version_variable(script: str, config: str, requires: Sequence[str]) -> tuple[str | None, str]:
    """Returns the variable that tells the build the project's version, and the tool that would
    otherwise read the version from git. The variable is None if the version is not in git.

    Args:
        script: the text of `setup.py`; empty if there is none.
        config: the text of `setup.cfg`; empty if there is none.
        requires: the build requirements in `pyproject.toml`.
    """
    text = "\n".join((script, config, *requires))
    if _BY_SCM.search(text):
        name = re.sub(r"[-_.]+", "_", _name_of(script, config)).upper()
        variable = "SETUPTOOLS_SCM_PRETEND_VERSION"
        return (f"{variable}_FOR_{name}" if name else variable), "setuptools-scm"
    return ("PBR_VERSION", "pbr") if _BY_PBR.search(text) else (None, "")


def not_installed(names: Container[str]) -> str:
    """Returns a warning for a project for which Iris installs nothing; empty if there is nothing to
    warn of.

    Args:
        names: the files of the project's directory.
    """
    if (file := next((each for each in UNREAD if each in names), None)) is not None:
        problem = f"{file} is for {UNREAD[file]}, and Iris does not read it"
        return (
            f"{problem}: nothing is installed for it; list its packages in requirements.txt, or use"
            " an image that has them"
        )
    if PYPROJECT in names:
        problem = f"{PYPROJECT} has no [project]"
        return (
            f"{problem}: nothing is installed for it; declare its dependencies there, or in"
            " requirements.txt"
        )
    return ""


def _is_setup_script(text: str) -> bool:
    """Returns whether a `setup.py` builds a package."""
    return _BUILDERS.search(text) is not None


def _declares_a_package(config: str) -> bool:
    """Returns whether a `setup.cfg` declares a package; most only configure tools."""
    values = _values(config)
    return any(values.get(key) for key in _DECLARES)


def _name_of(script: str, config: str) -> str:
    """Returns the name of the project; empty if only its build can tell it."""
    found = _NAME.search(script)
    return _values(config).get(("metadata", "name")) or (found[1] if found is not None else "")


def _values(config: str) -> dict[tuple[str, str], str]:
    """Returns the values of a `setup.cfg` by section and key. It is empty if the file is invalid;
    the build then reports the error.
    """
    if not config:
        return {}
    import configparser  # few projects have such a file

    parser = configparser.RawConfigParser()
    try:
        parser.read_string(config)
    except configparser.Error:
        return {}
    return {
        (name, key): value.strip()
        for name in parser.sections()
        for key, value in parser.items(name)
    }
