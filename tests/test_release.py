"""The checklist of a release: what it refuses."""

import importlib.util
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_spec = importlib.util.spec_from_file_location("release", ROOT / "scripts/release.py")
assert _spec is not None
assert _spec.loader is not None
release = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(release)


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("1.2.0", None),
        ("1.2.0rc1", None),
        ("1.2", "write the version as MAJOR.MINOR.PATCH, not '1.2'"),
        (
            "1.1.0",
            "version 1.1.0 is released already (tag v1.1.0); choose the next one in pyproject.toml",
        ),
    ],
)
def test_a_version_is_released_once(version: str, problem: str | None) -> None:
    """An index refuses the second upload of a version, after the tag and the images have been
    published.
    """
    assert list(release.version_problems(version, {"v1.1.0"})) == (
        [] if problem is None else [problem]
    )


_RELEASED = "# Changelog\n\n## Unreleased\n\n## 1.2.0 - 2026-11-24\n\n- New.\n"


@pytest.mark.parametrize(
    ("changelog", "problems"),
    [
        (_RELEASED, []),
        (_RELEASED.replace("- New.", ""), ["the section of 1.2.0 in CHANGELOG.md is empty"]),
        (
            _RELEASED.replace("1.2.0", "1.1.0"),
            ["CHANGELOG.md has no section '## 1.2.0 - YYYY-MM-DD'"],
        ),
        (
            _RELEASED.replace("Unreleased\n", "Unreleased\n\n- Newer."),
            [
                "move the entries of Unreleased to '## 1.2.0 - YYYY-MM-DD', and leave an empty"
                " Unreleased above it"
            ],
        ),
    ],
)
def test_a_release_has_its_own_section_in_the_changelog(
    changelog: str, problems: list[str]
) -> None:
    """With its date, and without entries that nobody can tell whether they are in it."""
    assert list(release.changelog_problems(changelog, "1.2.0")) == problems


def test_a_package_without_addresses_is_not_released() -> None:
    """Who finds it in an index must find its documentation."""
    urls = dict.fromkeys(("Homepage", "Documentation", "Changelog"), "https://example.org")
    (problem,) = release.metadata_problems({"urls": urls})
    assert problem.startswith("[project.urls] in pyproject.toml has no Issues")


def test_what_is_not_committed_is_not_released() -> None:
    """The tag would name sources other than those of the wheel."""
    assert list(release.tree_problems("")) == []
    assert list(release.tree_problems(" M README.md\n?? notes.txt\n")) == [
        "commit or remove: README.md, notes.txt"
    ]


def test_the_list_of_packages_has_those_of_every_extra() -> None:
    """Who checks a release for a vulnerable package looks only into its SBOM, and SSH is an extra,
    too.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirement = release.with_all_extras(project, "file:///iris.whl")

    assert (
        requirement
        == "iris-temporal[dashboard,docker,gcp,local,secrets,ssh,tracing] @ file:///iris.whl"
    )
