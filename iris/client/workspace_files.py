"""Which files of a directory make up a workspace.

In a git work tree: what git tracks, and what is new and not ignored; submodules and repositories within count with their files.
Elsewhere: everything but what `.gitignore` files exclude, at whatever depth they lie. In both cases `.irisignore` in the
workspace's own directory has the last word, in the same notation: it excludes, and with `!` takes in what git would leave out.
Among its lines the last one that matches counts. `.git`, `.venv` and `__pycache__` never belong to a workspace; empty
directories do not either.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pathspec import GitIgnoreSpec

from iris.errors import Rejected

IGNORE_FILE = ".irisignore"
#: What makes a directory a project, whose files a job from there gets without being asked.
MARKERS = ("pyproject.toml", IGNORE_FILE, "requirements.txt", "setup.py")
#: Of no use to another machine, wherever they lie.
_NEVER = {".git", ".venv", "__pycache__"}
#: Set while git runs its hooks; they would have it look at another repository.
_GITS_OWN = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"}


def is_project(directory: Path) -> bool:
    """Whether a job that is submitted from this directory means its files.

    Raises:
        Rejected: git refuses to say.
    """
    return any((directory / marker).is_file() for marker in MARKERS) or _in_git(directory.resolve())


def workspace_files(directory: Path) -> list[str]:
    """The paths of the workspace's files and links, relative to its directory, sorted.

    Args:
        directory: without a symbolic link on the way to it.

    Raises:
        Rejected: git refuses, a directory cannot be read, or an ignore file has a line that means nothing.
    """
    own = _Rules.read(directory / IGNORE_FILE, "")
    normal = set(_git_files(directory) if _in_git(directory) else _walk(directory))
    # What git leaves out is only looked at when it may be taken in again: it can be large.
    candidates = normal.union(_walk(directory, rules=None)) if own.takes_in else normal
    chosen = (path for path in candidates if _NEVER.isdisjoint(path.split("/")))
    return sorted(path for path in chosen if own.last_word(path, otherwise=path in normal))


class _Rules(NamedTuple):
    """The lines of one ignore file, for paths that begin with a base."""

    base: str
    spec: GitIgnoreSpec

    @classmethod
    def read(cls, file: Path, base: str) -> "_Rules":
        try:
            lines = file.read_text("utf-8", "surrogateescape").split("\n")
        except FileNotFoundError:
            lines = []
        except OSError as error:
            raise Rejected(f"{file} cannot be read ({error.strerror}); mend or remove it") from None
        try:
            return cls(base, GitIgnoreSpec.from_lines(lines))
        except ValueError as error:
            raise Rejected(f"{file} has a line that excludes nothing ({error}); write it as for git, or remove it") from None

    @property
    def takes_in(self) -> bool:
        return any(pattern.include is False for pattern in self.spec.patterns)

    def ignores(self, path: str) -> bool | None:
        """As git would; None: no line says anything about this path. Directories end with a slash."""
        return self.spec.check_file(path.removeprefix(self.base)).include

    def last_word(self, path: str, *, otherwise: bool) -> bool:
        """Whether the path belongs to the workspace by the last line that matches it."""
        for pattern in reversed(self.spec.patterns):
            if pattern.include is not None and pattern.match_file(path) is not None:
                return not pattern.include
        return otherwise


def _walk(root: Path, prefix: str = "", rules: tuple[_Rules, ...] | None = ()) -> Iterator[str]:
    """All files and links below the prefix that no rule excludes, nor any `.gitignore` on the way.

    Args:
        rules: of the directories above; None: nothing is excluded, whatever ignore files say.
    """
    try:
        entries = list(os.scandir(root / prefix))
    except OSError as error:
        raise Rejected(
            f"workspace: the directory {root / prefix} cannot be read ({error.strerror}); "
            f"make it readable, or take another --workspace"
        ) from None
    if rules is not None and any(entry.name == ".gitignore" for entry in entries):
        rules = (*rules, _Rules.read(root / prefix / ".gitignore", prefix))
    for entry in entries:
        path = prefix + entry.name
        below = entry.is_dir(follow_symlinks=False)
        # The nearest ignore file that says anything about it counts.
        verdicts = (each.ignores(f"{path}/" if below else path) for each in reversed(rules or ()))
        if entry.name in _NEVER or next((verdict for verdict in verdicts if verdict is not None), False):
            continue
        if below:
            yield from _walk(root, f"{path}/", rules)
        else:
            yield path


# -- git -----------------------------------------------------------------------------------------------------------------------


def _in_git(directory: Path) -> bool:
    """Whether git knows what is worth keeping here: not where there is no git, nor in a directory that it ignores itself."""
    if not any((parent / ".git").exists() for parent in (directory, *directory.parents)):
        return False
    try:
        inside = _git(directory, "rev-parse", "--is-inside-work-tree")
    except FileNotFoundError:
        return False
    return inside == b"true\n" and _git(directory, "check-ignore", ".", may_fail=True) == b""


def _git_files(directory: Path, prefix: str = "") -> Iterator[str]:
    listed = _git(directory / prefix, "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    for name in os.fsdecode(listed).split("\0"):
        path = prefix + name.rstrip("/")
        if not name or not os.path.lexists(directory / path):
            continue  # deleted, and not yet committed
        if (directory / path).is_dir() and not (directory / path).is_symlink():
            # A submodule, or a repository that nobody has made one; without a `.git` it has not been fetched, and is empty.
            if (directory / path / ".git").exists():
                yield from _git_files(directory, f"{path}/")
        else:
            yield path


def _git(directory: Path, *arguments: str, may_fail: bool = False) -> bytes:
    """What git answers.

    Raises:
        FileNotFoundError: there is no git.
        Rejected: it refuses.
    """
    env = {name: value for name, value in os.environ.items() if name not in _GITS_OWN}
    ran = subprocess.run(["git", "-C", str(directory), *arguments], capture_output=True, env=env, stdin=subprocess.DEVNULL)
    if ran.returncode and not may_fail:
        words = " ".join(ran.stderr.decode(errors="replace").split())
        raise Rejected(f"workspace: git cannot list the files of {directory}: {words}; mend that, or use --no-workspace")
    return ran.stdout
