"""Runs commands as processes of their own, with their output in files.

The fork server of `multiprocessing` runs the `iris` commands: it imports the modules of the command line once. Otherwise each of
some thousand commands would spend most of a second of CPU time on that. The tests of the guides run the commands cold.
"""

import json
import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, NamedTuple

import iris.cli
from iris.cli.main import main

#: The seconds that a command may take before the test gives up on it.
PATIENCE = 120.0
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([f"iris.cli.{module.name}" for module in iter_modules(iris.cli.__path__)])


class Ran(NamedTuple):
    """A command that has ended."""

    code: int
    raw_out: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw_out.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.raw_out)


class Forked:
    """A process of the fork server, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, process: ForkServerProcess) -> None:
        self._process, self.pid = process, process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("iris", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            assert self.pid is not None
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Running:
    """A command that has been started. Its output goes to files, so that no pipe can fill up."""

    def __init__(self, process: Forked | subprocess.Popen[bytes], command: Sequence[str], out: Path, err: Path) -> None:
        self.process, self._out, self._err = process, out, err
        self.command = shlex.join(command)

    @property
    def out(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def err(self) -> str:
        return self._err.read_text()

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)

    def ends(self, code: int | None = 0, within: float = PATIENCE) -> Ran:
        """Wait for its end. No command may ever show a user a traceback.

        Args:
            code: the exit code it must have; None: any.
        """
        try:
            ended_with = self.process.wait(within)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.command} did not end within {within:g} s\n{self.out[-2000:]}\n{self.err}") from None
        ran = Ran(ended_with, self._out.read_bytes(), self.err)
        assert "Traceback" not in ran.err, ran.err
        assert code is None or ran.code == code, f"{self.command} ended with {ran.code}, not {code}:\n{ran.err}"
        return ran


def begin_forked(
    arguments: Sequence[str], env: Mapping[str, str], cwd: Path, directory: Path, *, merged: bool = False, umask: int = -1
) -> Running:
    """Starts `iris ARGUMENTS…` in a process of the fork server.

    Args:
        directory: where the output is kept.
        merged: whether the two outputs go to one file, as a terminal shows them.
        umask: of the command; -1 for that of the tests.
    """
    out, err = _files(directory, merged=merged)
    given = (list(arguments), dict(env), cwd, out, err, umask)
    # A daemon, because the tests do not wait at their end for a command that still runs.
    process = _FORKS.Process(target=_run, args=given, daemon=True)
    process.start()
    return Running(Forked(process), ["iris", *arguments], out, err)


def begin_cold(
    arguments: Sequence[str], env: Mapping[str, str], cwd: Path, directory: Path, *, merged: bool = False, umask: int = -1
) -> Running:
    """Starts `iris ARGUMENTS…` in a new interpreter. The arguments are those of `begin_forked`."""
    out, err = _files(directory, merged=merged)
    with out.open("ab") as to_out, err.open("ab") as to_err:
        process = subprocess.Popen(
            [sys.executable, "-m", "iris.cli.main", *arguments],
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=to_out,
            stderr=to_err,
            start_new_session=True,
            preexec_fn=_as_in_a_terminal,
            umask=umask,
        )
    return Running(process, ["iris", *arguments], out, err)


def _files(directory: Path, *, merged: bool) -> tuple[Path, Path]:
    """Creates the files for the two outputs of a command: one file if they are merged."""
    made = Path(tempfile.mkdtemp(prefix="command-", dir=directory))
    out, err = made / "out", made / ("out" if merged else "err")
    out.touch()
    err.touch()
    return out, err


def _run(arguments: list[str], env: dict[str, str], cwd: Path, out: Path, err: Path, umask: int) -> None:
    """Runs `iris ARGUMENTS…` in this process, which has just been forked."""
    os.setsid()
    _as_in_a_terminal()
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    for number, path, flags in ((0, Path(os.devnull), os.O_RDONLY), (1, out, _WRITE), (2, err, _WRITE)):
        opened = os.open(path, flags, 0o666)
        os.dup2(opened, number)
        os.close(opened)
    if umask != -1:
        os.umask(umask)
    sys.argv = ["iris", *arguments]
    main()


def _as_in_a_terminal() -> None:
    """A shell that starts the tests in the background makes them, and what they start, ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
