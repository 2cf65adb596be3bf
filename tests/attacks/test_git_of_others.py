"""A git repository that comes from elsewhere names programs in its settings, which git runs when it
is asked about its files.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from iris.client.jobs.fetch import fetch, repository_warnings
from iris.client.jobs.files import OutputFile, outputs_of
from iris.client.workspace.files import commit_of, is_project, workspace_files
from iris.client.workspace.projects import ProjectFiles, version_variables
from iris.model import store_paths
from iris.model.errors import Rejected
from iris.storage.object_store import Store

JOB, RUN = "ada/train", "0193b0a0-1111"
PROJECT = """
[build-system]
requires = ["setuptools-scm"]
[project]
name = "app"
dynamic = ["version"]
"""


def git(directory: Path, *arguments: str) -> None:
    said = (
        "-c",
        "user.name=ada",
        "-c",
        "user.email=ada@example.org",
        "-c",
        "protocol.file.allow=always",
    )
    subprocess.run(
        ["git", "-C", str(directory), *said, *arguments], check=True, capture_output=True
    )


def repository(directory: Path) -> Path:
    """A repository with a commit, after which a file has changed in its time and not in its
    content.
    """
    directory.mkdir(parents=True)
    (directory / "pyproject.toml").write_text(PROJECT)
    (directory / "main.py").write_text("print(1)")
    git(directory, "init", "-q")
    git(directory, "add", ".")
    git(directory, "commit", "-qm", "one")
    os.utime(directory / "main.py", (1, 1))
    return directory


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """Exists when a program of the repository ran."""
    return tmp_path / "ran"


@pytest.fixture
def program(tmp_path: Path, ran: Path) -> Path:
    file = tmp_path / "program"
    file.write_text(f"#!/bin/sh\ntouch {ran}\n")
    file.chmod(0o755)
    return file


def _hooks(place: Path, program: Path) -> None:
    for hook in ("post-index-change", "reference-transaction", "fsmonitor-watchman"):
        (place / ".git/hooks" / hook).symlink_to(program)


def _hooks_elsewhere(place: Path, program: Path) -> None:
    (place / "hooks").mkdir()
    (place / "hooks/post-index-change").symlink_to(program)
    git(place, "config", "core.hooksPath", str(place / "hooks"))


def _filter(place: Path, program: Path, key: str = "filter.x.clean") -> None:
    (place / ".git/info").mkdir(exist_ok=True)
    (place / ".git/info/attributes").write_text(
        f"* filter={key.split('.', 1)[1].rpartition('.')[0]}\n"
    )
    git(place, "config", key, str(program))


def _included(place: Path, program: Path) -> None:
    (place / ".git/more").write_text(
        f'[core]\n\tfsmonitor = {program}\n[filter "x"]\n\tclean = {program}\n'
    )
    (place / ".git/info/attributes").write_text("* filter=x\n")
    git(place, "config", "include.path", "more")


def _of_the_work_tree(place: Path, program: Path) -> None:
    git(place, "config", "extensions.worktreeConfig", "true")
    git(place, "config", "--worktree", "core.fsmonitor", str(program))
    _filter(place, program)
    git(place, "config", "--unset", "filter.x.clean")
    git(place, "config", "--worktree", "filter.x.clean", str(program))


def _missing_object(place: Path, program: Path) -> None:
    """The repository is a partial clone: git fetches an object that it lacks, with a program that
    the settings name.
    """
    commit = subprocess.run(
        ["git", "-C", str(place), "rev-parse", "HEAD^{tree}"],
        check=True,
        capture_output=True,
        text=True,
    )
    tree = commit.stdout.strip()
    (place / ".git/objects" / tree[:2] / tree[2:]).unlink()
    git(place, "config", "extensions.partialClone", "origin")
    git(place, "config", "remote.origin.promisor", "true")
    git(place, "config", "remote.origin.url", str(place))
    git(place, "config", "remote.origin.uploadpack", str(program))
    git(place, "config", "core.repositoryFormatVersion", "1")


def _setting(key: str) -> Callable[[Path, Path], None]:
    return lambda place, program: git(place, "config", key, str(program))


ATTACKS: dict[str, Callable[[Path, Path], None]] = {
    "fsmonitor": _setting("core.fsmonitor"),
    "clean filter": _filter,
    "process filter": lambda place, program: _filter(place, program, "filter.x.y.process"),
    "hooks": _hooks,
    "hooks elsewhere": _hooks_elsewhere,
    "included settings": _included,
    "settings of a work tree": _of_the_work_tree,
    "missing object": _missing_object,
}


def ask_all(directory: Path) -> None:
    """Calls everything that asks git about a directory which may come from elsewhere."""
    is_project(directory)
    workspace_files(directory)
    commit_of(directory)
    version_variables(ProjectFiles(directory), {})


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_repository_that_the_user_stands_in_runs_no_program(
    tmp_path: Path, ran: Path, program: Path, attack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who looks at the files that a job has left may submit from there."""
    place = repository(tmp_path / "project")
    ATTACKS[attack](place, program)
    try:
        ask_all(place)
    except Rejected:
        assert attack == "missing object"

    assert not ran.exists()
    monkeypatch.setenv("GIT_OPTIONAL_LOCKS", "1")
    subprocess.run(["git", "-C", str(place), "status"], capture_output=True)
    assert ran.exists(), "this setting runs no program in git itself: the test shows nothing"


def _clone(place: Path, program: Path) -> None:
    repository(place)
    _filter(place, program)
    git(place, "config", "core.fsmonitor", str(program))


def _work_tree_elsewhere(place: Path, program: Path) -> None:
    """Its `.git` is a file that names a directory with another name."""
    _clone(place, program)
    (place / ".git").rename(place / "meta")
    (place / ".git").write_text("gitdir: meta\n")


def _without_work_tree(place: Path, program: Path) -> None:
    """A repository needs no `.git`: this directory itself has what git looks for."""
    _clone(place, program)
    for entry in (place / ".git").iterdir():
        entry.rename(place / entry.name)
    (place / ".git").rmdir()
    git(place, "--git-dir", str(place), "config", "core.worktree", str(place.parent))


@pytest.mark.parametrize("make", [_clone, _work_tree_elsewhere, _without_work_tree])
@pytest.mark.parametrize("name", ["results", "vendor/lib"])
def test_a_repository_below_the_users_own_is_not_asked(
    tmp_path: Path, ran: Path, program: Path, make: Callable[[Path, Path], None], name: str
) -> None:
    """Results are fetched into a project. `vendor/lib` is a submodule of it that was not
    fetched.
    """
    own = repository(tmp_path / "project")
    if name == "vendor/lib":
        git(own, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},vendor/lib")
        git(own, "commit", "-qm", "two")
    make(own / name, program)
    ask_all(own)

    assert not ran.exists()
    assert f"{name}/main.py" in workspace_files(own)
    assert not any("/.git/" in path for path in workspace_files(own))


@pytest.mark.parametrize("make", [_clone, _work_tree_elsewhere, _without_work_tree])
def test_from_a_directory_below_a_fetched_repository_no_program_runs(
    tmp_path: Path, ran: Path, program: Path, make: Callable[[Path, Path], None]
) -> None:
    """Whether the repository that is nearest has a `.git` or not."""
    make(repository(tmp_path / "project") / "results", program)
    (tmp_path / "project/results/deep").mkdir()
    for place in ("results", "results/deep"):
        ask_all(tmp_path / "project" / place)
    assert not ran.exists()


def test_ignore_files_count_in_a_repository_that_is_a_plain_directory(tmp_path: Path) -> None:
    """Its own ones, and those of the repository around it."""
    own = repository(tmp_path / "project")
    clone = repository(own / "a [clone]")
    (own / ".gitignore").write_text("*.log\n")
    (clone / ".gitignore").write_text("!kept.log\n*.tmp\n")
    for name in ("x.log", "kept.log", "x.tmp", "new.py"):
        (clone / name).write_text("")
    assert [path for path in workspace_files(own) if path.startswith("a ")] == [
        f"a [clone]/{name}"
        for name in (".gitignore", "kept.log", "main.py", "new.py", "pyproject.toml")
    ]


def test_a_filter_that_cannot_be_overridden_is_refused(
    tmp_path: Path, ran: Path, program: Path
) -> None:
    """Git would read another name than the one that is meant."""
    own = repository(tmp_path / "project")
    _filter(own, program, "filter.a=b.clean")
    with pytest.raises(
        Rejected,
        match=(
            r"names a program in its setting 'filter.a=b.clean'.*remove the setting, or use"
            r" --no-wor"
        ),
    ):
        workspace_files(own)
    assert commit_of(own) == ""
    assert not ran.exists()


def test_settings_of_the_user_stay_in_force(
    tmp_path: Path, ran: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git LFS is a filter of the user: without it, its files look changed. A repository may name
    the same filter.
    """
    own = repository(tmp_path / "project")
    (own / ".git/info/attributes").write_text("* filter=lfs\n")
    (tmp_path / "gitconfig").write_text(
        f'[filter "lfs"]\n\tclean = "touch {tmp_path}/users; cat"\n'
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    git(own, "config", "filter.lfs.clean", str(program))

    assert not commit_of(own).endswith("+")
    assert (tmp_path / "users").exists()
    assert not ran.exists()


def test_a_changed_file_of_a_submodule_marks_the_commit(tmp_path: Path) -> None:
    """It goes along, so the commit alone does not say what ran. Git itself would ask the submodule,
    with its settings.
    """
    library = repository(tmp_path / "library")
    own = repository(tmp_path / "project")
    git(own, "submodule", "add", "-q", str(library), "lib")
    git(own, "commit", "-qam", "two")
    assert not commit_of(own).endswith("+")
    (own / "lib/main.py").write_text("print(2)")
    assert commit_of(own).endswith("+")


# -- what a job has left
# --------------------------------------------------------------------------------------------------


async def left(tmp_path: Path, *paths: str) -> tuple[Store, list[OutputFile]]:
    """The output of a job."""
    store = Store((tmp_path / "store").as_uri(), create=True)
    for path in paths:
        await store.put(f"{store_paths.attempt_outputs(JOB, RUN, 0, 1)}/{path}", b"x")
    return store, await outputs_of(store, JOB, RUN)


async def test_fetch_says_where_it_has_written_a_repository(tmp_path: Path) -> None:
    """Git runs what a repository's settings name, whoever asks it: a prompt, an editor, or the
    user.
    """
    files = await left(tmp_path, "model", "deep/.git/config", "deep/.git/HEAD", "other/.GIT")
    found = repository_warnings(await fetch(*files, tmp_path / "into", by_task=False))
    assert [warning.partition(" ")[0] for warning in found] == [
        f"{tmp_path}/into/{name}" for name in ("deep/.git", "other/.GIT")
    ]
    assert repository_warnings(await fetch(*files, tmp_path / "into", by_task=False)) == []


async def test_nothing_is_added_to_a_repository_that_is_there(tmp_path: Path) -> None:
    """A hook that a job adds to the user's own repository would run at the next commit."""
    hook = repository(tmp_path / "project") / ".git/hooks/pre-commit"
    files = await left(tmp_path, "model", ".git/hooks/pre-commit")
    with pytest.raises(
        Rejected,
        match=r"pre-commit: would be added to a git repository that is there; fetch into another",
    ):
        await fetch(*files, tmp_path / "project", by_task=False)
    assert not (tmp_path / "project/model").exists()

    await fetch(*files, tmp_path / "project", by_task=False, force=True)
    assert hook.read_text() == "x"
