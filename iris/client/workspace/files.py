"""Selects the files of a directory that make up a workspace.

In a git work tree, the workspace has the files that git tracks and new files that are not ignored,
including files of submodules. A nested repository that is no submodule counts as a plain directory,
and git is not asked there. Outside of git, the workspace has all files that no `.gitignore`
excludes, at any depth.

In both cases, `.irisignore` in the workspace's own directory overrides the selection, in the same
notation: a line excludes files, and a line with `!` includes files, even ignored ones. The last
matching line applies. `.git`, `.venv`, `__pycache__`, other environments of Python or conda, the
state directory of Iris and empty directories are never part of a workspace.
"""

import os
import re
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from iris.client.connect.paths import state_dir
from iris.client.workspace.git import Repository
from iris.model.errors import Rejected
from iris.model.job.setup_files import CONFIG, SCRIPT, UNREAD

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILE = ".irisignore"
#: The files that make a directory a project. If a job is submitted from a project, it gets the
#: project's files by default.
MARKERS = ("pyproject.toml", IGNORE_FILE, "requirements.txt", SCRIPT, CONFIG, *UNREAD)
#: The names of files and directories that are excluded at any depth, because they are of no use on
#: another machine.
_NEVER = {".git", ".venv", "__pycache__"}
#: The files that mark a directory as a Python environment. `venv`, virtualenv and uv write the
#: first file, and conda writes the second.
_ENVIRONMENTS = ("pyvenv.cfg", "conda-meta/history")


def is_project(directory: Path) -> bool:
    """Returns whether a job that is submitted from this directory gets the directory's files by
    default.

    Raises:
        Rejected: git fails.
    """
    return (
        any((directory / marker).is_file() for marker in MARKERS)
        or _repository(directory.resolve()) is not None
    )


def workspace_files(directory: Path) -> list[str]:
    """Lists the workspace's files and links, relative to its directory, sorted.

    Args:
        directory: a path without symbolic links.

    Raises:
        Rejected: git fails, a directory cannot be read, or an ignore file has an invalid line.
    """
    own = _Rules.read(directory / IGNORE_FILE, "")
    state = _state_below(directory)
    repository = _repository(directory)
    if repository is None:
        normal = set(_walk(directory, state=state))
    else:
        normal = set(_without_environments(_git_files(repository, directory, state)))
    # Ignored files can be many, so they are listed only if a line may include some of them.
    candidates = normal.union(_walk(directory, rules=None, state=state)) if own.takes_in else normal
    chosen = (
        path
        for path in candidates
        if _NEVER.isdisjoint(path.split("/")) and not (state and path.startswith(f"{state}/"))
    )
    return sorted(path for path in chosen if own.includes(path, otherwise=path in normal))


def commit_of(directory: Path) -> str:
    """Returns the git commit of the directory, with a `+` if its files differ from the commit.
    Returns an empty text if there is no commit.
    """
    directory = directory.resolve()
    try:
        repository = _repository(directory)
        lines = repository.status(directory, "normal") if repository is not None else []
        commit = next(
            (line.rpartition(" ")[2] for line in lines if line.startswith("# branch.oid ")), ""
        )
        # There is no commit yet.
        if repository is None or re.fullmatch("[0-9a-f]{7,64}", commit) is None:
            return ""
        changed = any(not line.startswith("#") for line in lines) or _has_changed_submodule(
            repository, directory
        )
    except Rejected:
        return ""
    return commit + "+" * changed


def ignore_spec(lines: Iterable[str]) -> "GitIgnoreSpec":
    """Returns the patterns of lines in the notation of a `.gitignore`.

    Raises:
        ValueError: a line is invalid.
    """
    from pathspec import GitIgnoreSpec  # slow to import, and most jobs send no files

    return GitIgnoreSpec.from_lines(lines)


class _Rules(NamedTuple):
    """The patterns of one ignore file. They apply to paths that begin with `base`."""

    base: str
    spec: "GitIgnoreSpec"

    @classmethod
    def read(cls, file: Path, base: str) -> "_Rules":
        try:
            lines = file.read_text("utf-8", "surrogateescape").split("\n")
        except FileNotFoundError:
            lines = []
        except OSError as error:
            raise Rejected(f"{file} cannot be read ({error.strerror}); fix or remove it") from None
        try:
            return cls(base, ignore_spec(lines))
        except ValueError as error:
            raise Rejected(
                f"{file} has an invalid line ({error}); write it as in a .gitignore, or remove it"
            ) from None

    @property
    def takes_in(self) -> bool:
        return any(pattern.include is False for pattern in self.spec.patterns)

    def ignores(self, path: str) -> bool | None:
        """Returns whether git would ignore the path. Returns None if no line matches. The path of a
        directory ends with a slash.
        """
        return self.spec.check_file(path.removeprefix(self.base)).include

    def includes(self, path: str, *, otherwise: bool) -> bool:
        """Returns whether the last line that matches the path includes it.

        Args:
            otherwise: the result when no line matches.
        """
        for pattern in reversed(self.spec.patterns):
            if pattern.include is not None and pattern.match_file(path) is not None:
                return not pattern.include
        return otherwise


def _state_below(directory: Path) -> str:
    """Returns the path of Iris' own state in the workspace, such as keys and logs of local
    clusters. Returns an empty text if the state is elsewhere.
    """
    state = state_dir().resolve()
    return "/".join(state.relative_to(directory).parts) if state.is_relative_to(directory) else ""


def _walk(
    root: Path, prefix: str = "", rules: tuple[_Rules, ...] | None = (), state: str = ""
) -> Iterator[str]:
    """Yields all files and links below the prefix that neither the rules nor a `.gitignore` on the
    way exclude.

    Args:
        rules: the ignore files of the directories above. None ignores all ignore files, so that
            nothing is excluded.
        state: the state directory of Iris, which is not entered.
    """
    try:
        entries = list(os.scandir(root / prefix))
    except OSError as error:
        raise Rejected(
            f"workspace: the directory {root / prefix} cannot be read ({error.strerror}); "
            "make it readable, or choose another --workspace"
        ) from None
    if prefix and _is_environment(root / prefix, {entry.name for entry in entries}):
        return
    if rules is not None and any(entry.name == ".gitignore" for entry in entries):
        rules = (*rules, _Rules.read(root / prefix / ".gitignore", prefix))
    for entry in entries:
        path = prefix + entry.name
        below = entry.is_dir(follow_symlinks=False)
        # The nearest ignore file with a matching line decides.
        verdicts = (each.ignores(f"{path}/" if below else path) for each in reversed(rules or ()))
        if (
            entry.name in _NEVER
            or path == state
            or next((verdict for verdict in verdicts if verdict is not None), False)
        ):
            continue
        if below:
            yield from _walk(root, f"{path}/", rules, state)
        elif not (entry.is_symlink() and _is_environment(root / path)):
            yield path


def _is_environment(directory: Path, names: Container[str] | None = None) -> bool:
    """Returns whether the directory, or the target of a link, is an environment of this machine.

    Args:
        names: the names in the directory. None if they are not known yet.
    """
    likely = (each for each in _ENVIRONMENTS if names is None or each.partition("/")[0] in names)
    return any((directory / each).is_file() for each in likely)


def _without_environments(paths: Iterable[str]) -> Iterator[str]:
    """Leaves out the files in environments. The workspace's own directory never counts as an
    environment.
    """
    listed = list(paths)
    found = {
        path.removesuffix(each)
        for path in listed
        for each in _ENVIRONMENTS
        if path.endswith(f"/{each}")
    }
    for path in listed:
        parents = (path[: at + 1] for at, letter in enumerate(path) if letter == "/")
        if not found or found.isdisjoint(parents):
            yield path


def _repository(directory: Path) -> Repository | None:
    """Returns the git repository whose work tree has the directory and does not ignore it."""
    found = Repository.around(directory)
    return None if found is None or found.ignores(directory) else found


def _git_files(repository: Repository, directory: Path, state: str) -> Iterator[str]:
    for path, is_submodule in repository.tracked(directory).items():
        place = directory / path
        if is_submodule:
            yield from _submodule_files(directory, path, state)
        elif _is_sent(place):
            yield path
    for path in repository.untracked(directory):
        if path.endswith("/"):  # git shows a nested repository like this
            yield from repository.not_ignored(directory, _walk(directory, path, (), state))
        elif _is_sent(directory / path):
            yield path


def _is_sent(place: Path) -> bool:
    """Returns whether the path exists, and is neither a directory nor a link to an environment."""
    return (
        not _is_environment(place) if place.is_symlink() else place.exists() and not place.is_dir()
    )


def _submodule_files(directory: Path, path: str, state: str) -> Iterator[str]:
    place = directory / path
    if place.is_symlink() or not place.is_dir():
        return
    repository = Repository.at(place)
    if repository is None:  # the submodule was not fetched
        yield from _walk(directory, f"{path}/", (), state)
    else:
        yield from (f"{path}/{each}" for each in _git_files(repository, place, _state_below(place)))


def _has_changed_submodule(repository: Repository, directory: Path) -> bool:
    """Returns whether files of a submodule differ from its commit."""
    return any(
        any(not line.startswith("#") for line in below.status(below.top, "normal"))
        or _has_changed_submodule(below, below.top)
        for below in repository.submodules(directory)
    )
