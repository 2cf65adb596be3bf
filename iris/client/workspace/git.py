"""Asks git about the repository of a directory, without running programs of the repository.

A repository can come from elsewhere: from an archive, or from the output of a job. Its settings can
name programs, which git runs when it lists files. So Iris asks only the repository around a
directory and its registered submodules, and overrides their settings that name programs. Settings
of the user and of the machine stay in force.
"""

import os
import re
import subprocess
from collections.abc import Container, Iterable
from pathlib import Path
from typing import NamedTuple

from iris.model.errors import Rejected

#: The `GIT_` environment variables that Iris passes on when it runs git. It removes all others: git
#: hooks set variables that name another repository, and some variables name programs.
_KEPT_VARIABLES = re.compile(
    r"GIT_(CONFIG_(GLOBAL|SYSTEM|NOSYSTEM|COUNT|(KEY|VALUE)_\d+)|EXEC_PATH|CEILING_DIRECTORIES"
    r"|DISCOVERY_ACROSS_FILESYSTEM)"
)
#: The environment variables that prevent git from fetching missing objects and from writing files
#: of the repository. Both actions could run programs.
_VARIABLES = {
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}
#: Safe values for git settings that name programs. They replace the values of the repository and of
#: the user.
_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.alternateRefsCommand": "false",
    "core.askPass": "",
    "core.gitProxy": "",
    "core.pager": "cat",
    "core.sshCommand": "false",
    "credential.helper": "",
    "diff.external": "",
    "gpg.program": "false",
}
#: The pattern of git settings that can name programs, such as `filter.lfs.clean` of Git LFS. The
#: user's own values are kept, and the repository's values are replaced.
_NAMED_SETTINGS = re.compile(r"(filter|hook)\..*", re.DOTALL)
#: The scopes of git settings that belong to the repository, and not to the user.
_OF_THE_REPOSITORY = ("local", "worktree")
#: The file mode that marks a submodule in the index.
_SUBMODULE = "160000"
#: The option that makes git read paths literally, and not as patterns. Some commands of git do not
#: accept it.
_LITERALLY = ("--literal-pathspecs",)
#: The characters without width that some file systems ignore in file names.
_IGNORABLE = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")


class Repository(NamedTuple):
    """A git repository with a work tree.

    Args:
        top: the directory of the work tree, without symbolic links.
        options: the options of git that override the repository's settings.
    """

    top: Path
    options: tuple[str, ...]

    @classmethod
    def around(cls, directory: Path) -> "Repository | None":
        """Returns the repository whose work tree has the directory. Returns None if there is no
        repository, or git is not installed.

        Args:
            directory: a path without symbolic links.

        Raises:
            Rejected: git fails.
        """
        places = [place for place in (directory, *directory.parents) if (place / ".git").exists()]
        if not places or ".git" in directory.parts:
            return None
        # Ask git at the place of the `.git`: there it finds no bare repository in between.
        unchecked = cls(places[0], tuple(_as_options(_SETTINGS)))
        try:
            inside, _, top = unchecked.ask(
                "rev-parse", "--is-inside-work-tree", "--show-toplevel"
            ).partition("\n")
        except FileNotFoundError:
            return None
        place = next(
            (each for each in places if inside == "true" and each.samefile(top.removesuffix("\n"))),
            None,
        )
        if place is None:
            return None
        listed = unchecked.ask("config", "--list", "--show-scope", "-z")
        return cls(place, (*unchecked.options, *_as_options(_overridden(place, listed))))

    @classmethod
    def at(cls, directory: Path) -> "Repository | None":
        """Returns the repository whose work tree is the directory. Returns None if there is no such
        repository.

        Raises:
            Rejected: git fails.
        """
        found = cls.around(directory) if (directory / ".git").exists() else None
        return found if found is not None and found.top == directory else None

    def ask(self, *arguments: str, given: Iterable[str] = (), good: Container[int] = (0,)) -> str:
        """Runs git in the work tree's directory and returns its output.

        Args:
            given: texts for the standard input of git, which are separated by NUL.
            good: the exit codes that mean success.

        Raises:
            FileNotFoundError: git is not installed.
            Rejected: git fails.
        """
        command = ["git", "--no-pager", "-C", str(self.top), *self.options, *arguments]
        ran = subprocess.run(
            command, capture_output=True, env=_environment(), input=os.fsencode("\0".join(given))
        )
        if ran.returncode not in good:
            error = " ".join(ran.stderr.decode(errors="replace").split())
            raise Rejected(
                f"workspace: git cannot list the files of {self.top}: {error}; fix that, or use"
                " --no-workspace"
            )
        return os.fsdecode(ran.stdout)

    def ignores(self, directory: Path) -> bool:
        """Returns whether an ignore file excludes the directory."""
        return directory != self.top and not self.not_ignored(self.top, [self._path_of(directory)])

    def not_ignored(self, directory: Path, paths: Iterable[str]) -> list[str]:
        """Returns the paths, relative to the directory, that no ignore file excludes."""
        full = {f"./{self._path_of(directory)}/{path}": path for path in paths}
        ignored = self.ask("check-ignore", "-z", "--stdin", given=full, good=(0, 1)) if full else ""
        for path in ignored.split("\0"):
            full.pop(path, None)
        return list(full.values())

    def tracked(self, directory: Path) -> dict[str, bool]:
        """Returns the paths in the index below the directory, relative to it, and whether each is a
        submodule.
        """
        listed = self.ask(*_LITERALLY, "ls-files", "--stage", "-z", "--", self._path_of(directory))
        entries = (entry.split("\t", 1) for entry in listed.split("\0") if entry)
        return {
            self._below(directory, path): stage.startswith(_SUBMODULE) for stage, path in entries
        }

    def untracked(self, directory: Path) -> list[str]:
        """Returns the paths below the directory, relative to it, that are neither tracked nor
        ignored.

        A path that ends with a slash is another repository's work tree.
        """
        selection = ("--others", "--exclude-standard")
        listed = self.ask(*_LITERALLY, "ls-files", *selection, "-z", "--", self._path_of(directory))
        return [self._below(directory, path) for path in listed.split("\0") if path]

    def status(self, directory: Path, untracked: str) -> list[str]:
        """Returns the lines of git's status: the commit, and a line for each change below the
        directory.

        Args:
            untracked: `normal` or `no`.

        Raises:
            Rejected: git fails.
        """
        options = (f"--untracked-files={untracked}", "--ignore-submodules=dirty", "--no-renames")
        place = self._path_of(directory)
        return self.ask(
            *_LITERALLY, "status", "--porcelain=v2", "--branch", *options, "--", place
        ).splitlines()

    def submodules(self, directory: Path) -> "list[Repository]":
        """Returns the repositories of the submodules below the directory that were fetched."""
        places = [
            directory / path
            for path, is_submodule in self.tracked(directory).items()
            if is_submodule
        ]
        return [found for found in map(Repository.at, places) if found is not None]

    def _path_of(self, directory: Path) -> str:
        return directory.relative_to(self.top).as_posix()

    def _below(self, directory: Path, path: str) -> str:
        return path if directory == self.top else path.removeprefix(f"{self._path_of(directory)}/")


def git_folder_in(directory: Path, path: Path) -> Path | None:
    """Returns the first folder in the path, below the directory, whose name makes it a git
    repository: `.git`, or a name that some file systems treat as the same, such as `.Git`.
    """
    below = path.relative_to(directory).parts
    for number, part in enumerate(below, start=1):
        if _IGNORABLE.sub("", part).casefold() == ".git":
            return directory.joinpath(*below[:number])
    return None


def _overridden(top: Path, listed: str) -> dict[str, str]:
    """Returns the values that replace the repository's settings of `_NAMED_SETTINGS`: the user's
    values, or empty ones.

    Args:
        listed: the output of `git config --list --show-scope -z`.
    """
    parts = iter(listed.split("\0"))
    users: dict[str, str] = {}
    repositorys = []
    for scope, setting in zip(parts, parts, strict=False):
        key, _, value = setting.partition("\n")
        if _NAMED_SETTINGS.fullmatch(key) is None:
            continue
        if scope in _OF_THE_REPOSITORY:
            repositorys.append(key)
        else:
            users[key] = value
    for key in repositorys:
        if "=" in key:
            raise Rejected(
                f"workspace: the repository {top} names a program in its setting {key!r}, which"
                " Iris cannot override; remove the setting, or use --no-workspace"
            )
    return {key: users.get(key, "") for key in repositorys}


def _as_options(settings: dict[str, str]) -> Iterable[str]:
    return (word for key, value in settings.items() for word in ("-c", f"{key}={value}"))


def _environment() -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or _KEPT_VARIABLES.fullmatch(name)
    }
    return kept | _VARIABLES
