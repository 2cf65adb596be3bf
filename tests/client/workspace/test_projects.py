"""Which files a project needs, and which version it has, on the machine of the user."""

import re
import subprocess
from pathlib import Path

import pytest

from iris.client.workspace.projects import (
    ProjectFiles,
    check_sources,
    is_installed,
    locate_project,
    version_variables,
    workspace_root,
)
from iris.model.errors import Rejected

SCM = """
[build-system]
requires = ["{}>=1"]
build-backend = "any"
[project]
name = "My.Study"
dynamic = ["version"]
"""
OWN = "SETUPTOOLS_SCM_PRETEND_VERSION_FOR_MY_STUDY"


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def git(directory: Path, *words: str) -> str:
    command = [
        "git",
        "-C",
        str(directory),
        "-c",
        "user.name=ada",
        "-c",
        "user.email=ada@example.com",
        *words,
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def a_member(name: str, sources: str = "") -> str:
    return f'[project]\nname = "{name}"\nversion = "1"\n[tool.uv.sources]\n{sources}\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A uv workspace with two members, and a project in it that is none."""
    root = tmp_path / "mono"
    write(
        root,
        **{
            "pyproject.toml": (
                '[tool.uv.workspace]\nmembers = ["apps/*", "libs/**"]\nexclude = ["apps/old"]\n'
            ),
            "apps/train/pyproject.toml": a_member("train", "lib = { workspace = true }"),
            "apps/old/pyproject.toml": a_member("old"),
            "libs/deep/lib/pyproject.toml": a_member("lib"),
            "apps/train/src/train.py": "",
        },
    )
    return root


@pytest.mark.parametrize(
    ("directory", "member"),
    [
        ("apps/train", True),
        ("libs/deep/lib", True),
        ("apps/old", False),
        ("apps/train/src", False),
        (".", False),
    ],
)
def test_a_member_finds_the_root_of_its_workspace(root: Path, directory: str, member: bool) -> None:
    """Its lock and the packages beside it are there; an excluded project and a plain directory have
    none.
    """
    assert workspace_root(root / directory) == (root if member else None)


def test_a_member_without_its_workspace_is_refused_with_the_options_that_send_it(
    root: Path,
) -> None:
    """The host would say so minutes later, on a machine that is paid for."""
    remedy = re.escape(f"--workspace {root} --project apps/train")
    with pytest.raises(
        Rejected,
        match=(
            r"^project: lib is another package of the uv workspace .*, which is not sent;"
            rf" .*{remedy}$"
        ),
    ):
        check_sources(ProjectFiles(root / "apps/train"), shares_files=False)

    check_sources(locate_project(root, "apps/train"), shares_files=False)


def test_a_path_dependency_outside_is_refused_with_the_options_that_send_it(tmp_path: Path) -> None:
    """`--workspace` with the directory above both, and the project in it."""
    write(
        tmp_path,
        **{
            "app/pyproject.toml": a_member("app", 'lib = [{ path = "../lib", editable = true }]'),
            "lib/x.py": "",
        },
    )
    remedy = re.escape(f"send both with: --workspace {tmp_path} --project app")
    with pytest.raises(
        Rejected,
        match=rf"depends on lib in \.\./lib, which is outside the files that are sent; {remedy}$",
    ):
        check_sources(ProjectFiles(tmp_path / "app"), shares_files=True)

    check_sources(ProjectFiles(tmp_path, "app"), shares_files=False)


@pytest.mark.parametrize(
    "line",
    ["-e ../lib", "../lib ; os_name != 'nt'", "-r ../lib/requirements.txt", "--editable=../lib"],
)
def test_a_requirements_file_that_names_files_outside_is_refused(tmp_path: Path, line: str) -> None:
    """As a path dependency is."""
    write(tmp_path, **{"app/requirements.txt": f"numpy\n{line}\n", "lib/requirements.txt": ""})
    with pytest.raises(
        Rejected, match="outside the files that are sent; send both with: --workspace"
    ):
        check_sources(ProjectFiles(tmp_path / "app"), shares_files=False)

    check_sources(ProjectFiles(tmp_path, "app"), shares_files=False)


def test_an_absolute_path_is_left_to_hosts_that_have_this_machines_files(tmp_path: Path) -> None:
    """A local cluster can install it; machines elsewhere cannot."""
    (tmp_path / "lib").mkdir()
    write(
        tmp_path, **{"app/pyproject.toml": a_member("app", f'lib = {{ path = "{tmp_path}/lib" }}')}
    )
    check_sources(ProjectFiles(tmp_path / "app"), shares_files=True)
    with pytest.raises(Rejected, match="outside the files that are sent"):
        check_sources(ProjectFiles(tmp_path / "app"), shares_files=False)


@pytest.mark.parametrize("project", ["nowhere", "..", "/etc", "apps/train/src/train.py"])
def test_a_project_that_is_no_directory_of_the_workspace_is_refused(
    root: Path, project: str
) -> None:
    """The program would have nowhere to start."""
    with pytest.raises(Rejected, match="write its path relative to --workspace"):
        locate_project(root, project)


def test_a_pyproject_that_is_not_toml_is_refused_by_name(tmp_path: Path) -> None:
    """Before anything is sent."""
    write(tmp_path, **{"pyproject.toml": "[project"})
    with pytest.raises(Rejected, match=r"pyproject\.toml is not TOML"):
        check_sources(ProjectFiles(tmp_path), shares_files=False)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A project with a version in git, with one commit."""
    project = tmp_path / "project"
    write(project, **{"pyproject.toml": SCM.format("setuptools_scm"), "study.py": ""})
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "commit", "-qm", "one")
    return project


def version(project: Path, variable: str = OWN) -> str:
    return version_variables(ProjectFiles(project), {})[variable]


def test_a_version_is_that_of_the_tag_or_the_next_one(repository: Path) -> None:
    """As setuptools-scm writes it at home, so that the same commit has the same version
    everywhere.
    """
    sha = git(repository, "rev-parse", "--short=7", "HEAD")
    assert version(repository) == f"0.1.dev1+g{sha}"
    git(repository, "tag", "v1.2.9")
    assert version(repository) == "1.2.9"

    write(repository, **{"study.py": "x = 1"})
    assert version(repository) == f"1.2.10.dev0+g{sha}.dirty"

    git(repository, "commit", "-qam", "two")
    sha = git(repository, "rev-parse", "--short=7", "HEAD")
    assert version(repository) == f"1.2.10.dev1+g{sha}"
    git(repository, "tag", "my-study-2.0rc1")
    assert version(repository) == "2.0rc1"


@pytest.mark.parametrize(
    ("tool", "variable"),
    [
        ("setuptools-scm[toml]", OWN),
        ("hatch-vcs", "SETUPTOOLS_SCM_PRETEND_VERSION"),
        ("uv_dynamic_versioning", "UV_DYNAMIC_VERSIONING_BYPASS"),
        ("hatchling", None),
    ],
)
def test_each_build_backend_gets_the_version_where_it_looks_for_it(
    repository: Path, tool: str, variable: str | None
) -> None:
    """A project with a version of its own, or another way to find it, gets none."""
    write(repository, **{"pyproject.toml": SCM.format(tool)})
    assert [*version_variables(ProjectFiles(repository), {})] == ([variable] if variable else [])
    assert version_variables(ProjectFiles(repository), {variable or "X": "1"}) == {}

    write(repository, **{"pyproject.toml": SCM.format(tool).replace("dynamic", "# dynamic")})
    assert version_variables(ProjectFiles(repository), {}) == {}


def test_a_members_version_is_found_too(root: Path) -> None:
    """uv builds the packages beside the project."""
    write(root, **{"libs/deep/lib/pyproject.toml": SCM.format("setuptools-scm")})
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "one")
    git(root, "tag", "3.1")

    assert version_variables(ProjectFiles(root, "apps/train"), {}) == {OWN: "3.1"}
    assert version_variables(ProjectFiles(root, "apps/old"), {}) == {}


def test_a_version_that_nothing_gives_is_refused_unless_the_project_has_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build on the host could only fail."""
    write(tmp_path, **{"pyproject.toml": SCM.format("setuptools-scm")})
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(
        Rejected,
        match=f"but git has no commit there; commit the project, or set the version with --env {OWN}=VERSION$",
    ):
        version_variables(ProjectFiles(tmp_path), {})

    monkeypatch.setenv(OWN, "7")
    assert version_variables(ProjectFiles(tmp_path), {}) == {OWN: "7"}
    monkeypatch.delenv(OWN)
    write(
        tmp_path,
        **{
            "pyproject.toml": (
                SCM.format("setuptools-scm") + '[tool.setuptools_scm]\nfallback_version = "0"\n'
            )
        },
    )
    assert version_variables(ProjectFiles(tmp_path), {}) == {}


# -- setup.py and setup.cfg ----------------------------------------------------------------------

CONFIG = "[metadata]\nname = study\n[options]\ninstall_requires = tiny\n"


def test_a_setup_cfg_that_nothing_builds_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    """The host would refuse it too, on a machine that is paid for."""
    write(tmp_path, **{"setup.cfg": CONFIG})
    with pytest.raises(
        Rejected,
        match=(
            r"^project: .* neither a setup\.py nor a pyproject\.toml.* add an empty pyproject\.toml"
        ),
    ):
        check_sources(ProjectFiles(tmp_path), shares_files=False)

    write(tmp_path, **{"pyproject.toml": ""})
    check_sources(ProjectFiles(tmp_path), shares_files=False)


@pytest.mark.parametrize(
    ("files", "installed"),
    [
        ({"setup.py": "from setuptools import setup"}, True),
        ({"setup.cfg": CONFIG, "pyproject.toml": "[tool.ruff]"}, True),
        ({"setup.py": "print('prepares the data')"}, False),
        ({"setup.cfg": "[flake8]"}, False),
        ({"environment.yml": "dependencies: []"}, False),
    ],
)
def test_a_project_of_setuptools_alone_has_an_environment(
    tmp_path: Path, files: dict[str, str], installed: bool
) -> None:
    """A function's job runs in this environment, and not in the interpreter of its caller."""
    write(tmp_path, **files)
    assert is_installed(ProjectFiles(tmp_path)) is installed


@pytest.mark.parametrize(
    ("script", "variable"),
    [
        ("setup(name='My.Study', use_scm_version=True)  # setuptools", OWN),
        (
            "import setuptools; setup(**read(), use_scm_version=True)",
            "SETUPTOOLS_SCM_PRETEND_VERSION",
        ),
        ("import setuptools; setup(setup_requires=['pbr'], pbr=True)", "PBR_VERSION"),
    ],
)
def test_a_setup_script_gets_its_version_from_git(
    repository: Path, script: str, variable: str
) -> None:
    """A bundle has no `.git`, without which the build fails."""
    (repository / "pyproject.toml").unlink()
    write(repository, **{"setup.py": script})
    git(repository, "add", ".")
    git(repository, "commit", "-qam", "old")
    git(repository, "tag", "v2.1")

    assert version_variables(ProjectFiles(repository), {}) == {variable: "2.1"}
