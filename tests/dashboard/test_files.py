"""The files of the dashboard, and what the package has of them."""

import hashlib
import re
from fnmatch import fnmatch
from pathlib import Path
from tomllib import loads

from iris.dashboard.rendering import STATIC, make_environment

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "iris/dashboard"


def test_the_copied_library_is_the_published_one() -> None:
    """The version and the checksum are in the list of dependencies, where an upgrade changes them."""
    page = (ROOT / "docs/dependencies.md").read_text()
    found = re.search(r"idiomorph\.min\.js`, version ([0-9.]+).*?`([0-9a-f]{64})`", page, re.DOTALL)
    assert found is not None

    content = (STATIC / "idiomorph/idiomorph.min.js").read_bytes()
    assert hashlib.sha256(content).hexdigest() == found[2]
    assert (STATIC / "idiomorph/LICENSE").is_file()


def test_the_package_has_every_template_and_static_file() -> None:
    """A checkout has them anyway; a wheel has only those that pyproject.toml names."""
    project = loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["iris.dashboard"]
    files = [
        each.relative_to(FOLDER).as_posix()
        for folder in ("templates", "static")
        for each in (FOLDER / folder).rglob("*")
        if each.is_file()
    ]

    assert len(files) > 10
    assert [
        each
        for each in files
        if not any(
            fnmatch(each, pattern) and each.count("/") == pattern.count("/") for pattern in patterns
        )
    ] == []


def test_every_template_can_be_compiled() -> None:
    """A mistake in one would show only on its page."""
    environment = make_environment()
    names = environment.list_templates()

    assert len(names) > 5
    for name in names:
        environment.get_template(name)
