"""Explains why a program cannot be started, with a remedy. The cause may be the first line of a
script.

Uses only the standard library, as the shim does, which imports this module by its bare name.
"""

# ruff: noqa: PTH110, PTH112, PTH118, PTH119
# As few imports as possible: every task has a process that may load this module.

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: The maximum number of bytes that are read from the beginning of a file. The kernel reads 256
#: bytes of a script's first line.
HEAD = 1024
#: The exit codes that a shell uses for a program that does not exist, and for a program that cannot
#: be executed.
MISSING, NOT_EXECUTABLE = 127, 126
_REFUSED = (
    "is executable, but the system refuses it: its disk is mounted with noexec, or its interpreter "
    "or a directory above it is closed to the user of the program"
)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
#: The interpreters that refuse a script whose first line (`#!`) gives them an argument with a
#: carriage return at its end.
_STRICT = ("sh", "bash", "dash", "ksh", "zsh", "python")


def fault_of(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, where: str
) -> tuple[str, int] | None:
    """Returns why a script of this machine would not run, and the shell's exit code; None if no
    problem is known.

    Args:
        argv: the words of the program.
        env: the environment of the program.
        cwd: the working directory of the program.
        where: a name of the machine for the text, as in "which WHERE does not have".
    """
    file = _found(argv[0], env, cwd)
    fault = _script_fault_here(argv[0], file, env, cwd, where) if file else ""
    return (fault, MISSING) if fault else None


def why(
    error: Exception, argv: Sequence[str], env: Mapping[str, str], cwd: str, where: str
) -> tuple[str, int]:
    """Returns the sentence for a program that the system did not start, and the shell's exit code.

    Args:
        error: the error of the system. The other arguments are those of `fault_of`.
    """
    program = argv[0]
    file = _found(program, env, cwd)
    if isinstance(error, FileNotFoundError) and not file:
        beside = "/" not in program and os.path.exists(os.path.join(cwd, program))
        return missing(argv, f"on {where}", beside=beside), MISSING
    if file and (fault := _script_fault_here(program, file, env, cwd, where)):
        return fault, MISSING
    if isinstance(error, FileNotFoundError):
        loader = "its loader, such as the C library for which it was built"
        return f"{program!r} needs a file that {where} does not have: {loader}", MISSING
    if isinstance(error, (PermissionError, NotADirectoryError)):
        is_directory = os.path.isdir(file)
        if file and not is_directory and os.access(file, os.X_OK):
            return f"{program!r} {_REFUSED}", NOT_EXECUTABLE
        return not_executable(program, head_of(file), is_directory=is_directory), NOT_EXECUTABLE
    if isinstance(error, OSError) and error.errno == errno.ENOEXEC:
        return _not_a_program(program, head_of(file)), NOT_EXECUTABLE
    return f"{program!r} could not be started: {error}", NOT_EXECUTABLE


def missing(argv: Sequence[str], where: str, *, beside: bool) -> str:
    """Returns the sentence for a program that does not exist.

    Args:
        where: the place, as in "there is no program X WHERE".
        beside: True if the directory in which it would start has a file of this name.
    """
    problem = f"there is no program {argv[0]!r} {where}"
    if beside:
        return f"{problem}; for the file of this name in the program's directory, write ./{argv[0]}"
    if len(argv[0].split()) > 1:
        return f"{problem}: it is one word; write it without the quotes: {' '.join(argv)}"
    return problem


def not_executable(program: str, head: bytes, *, is_directory: bool = False) -> str:
    """Returns the sentence for a file that may not be executed."""
    if is_directory:
        return f"{program!r} is not executable: it is a directory"
    problem = f"{program!r} is not executable"
    if interpreter := " ".join(_interpreter(_first_line(head))).strip():
        return f"{problem}; make it so with chmod +x, or run it with: {interpreter} {program}"
    return problem


def script_fault(program: str, head: bytes, there: Callable[[str], bool], where: str) -> str:
    """Returns why a script does not run, according to its first line; empty if it may run, or is
    not a script.

    Args:
        head: the first bytes of the file.
        there: returns True if an interpreter exists, which is given as a path or a name on PATH.
        where: as for `fault_of`.
    """
    line = _first_line(head)
    windows, (interpreter, argument) = line.endswith("\r"), _interpreter(line)
    if not interpreter:
        return ""
    by_env = os.path.basename(interpreter) == "env" and _is_a_name(argument)
    needed = argument if by_env else interpreter
    # The kernel does not search PATH: an interpreter without a slash is in the working directory.
    place = needed if by_env or "/" in needed else f"./{needed}"
    found_with_its_return = (by_env or not argument) and there(f"{place}\r")
    if (
        windows
        and not found_with_its_return
        and (by_env or _takes_no_return(interpreter, argument))
    ):
        problem = f"{program!r} has the line ends of Windows (CRLF)"
        asked = f"its first line asks for {line.strip(' ')!r}"
        return f"{problem}, so {asked}; convert it with: sed -i 's/\\r$//' {program}"
    if there(place):
        return ""
    problem = f"{program!r} needs the interpreter {needed!r}"
    if place != needed:
        return (
            f"{problem}, which is not a path; write its path in the first line, or #!/usr/bin/env"
            f" {needed}"
        )
    problem = f"{problem}, which {where} does not have{' on its PATH' * by_env}"
    return f"{problem}; install it, or name another one in the first line"


def head_of(file: str, *, links: bool = True) -> bytes:
    """Returns the first bytes of a regular file; empty if it is not one, or cannot be read. Does
    not block.

    Args:
        links: True to follow a link.
    """
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        opened = os.open(file, flags if links else flags | os.O_NOFOLLOW)
    except (OSError, ValueError):
        return b""
    try:
        return os.read(opened, HEAD) if stat.S_ISREG(os.fstat(opened).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(opened)


# -- inside --------------------------------------------------------------------------------------


def _script_fault_here(
    program: str, file: str, env: Mapping[str, str], cwd: str, where: str
) -> str:
    def there(name: str) -> bool:
        found = _found(name, env, cwd)
        return bool(found) and not os.path.isdir(found)

    return script_fault(program, head_of(file), there, where)


def _found(program: str, env: Mapping[str, str], cwd: str) -> str:
    """Returns the path of the file that the system would start; empty if there is none."""
    folders = [""] if "/" in program else env.get("PATH", os.defpath).split(":")
    paths = [os.path.join(cwd, folder, program) for folder in folders]
    there = [path for path in paths if os.path.exists(path)]
    return next((path for path in there if os.access(path, os.X_OK)), there[0] if there else "")


def _first_line(head: bytes) -> str:
    """Returns the first line without `#!`; empty if the file is not a script."""
    is_script = head.startswith(b"#!")
    return head[2:].partition(b"\n")[0].decode(errors="replace") if is_script else ""


def _interpreter(line: str) -> tuple[str, str]:
    """Splits a first line into the interpreter and its argument, at spaces and tabs as the kernel
    does. A carriage return at the end is left out.
    """
    interpreter, _, argument = line.rstrip("\r").strip(" \t").replace("\t", " ").partition(" ")
    return interpreter, argument.strip(" ")


def _is_a_name(argument: str) -> bool:
    """Returns whether the argument of `env` is only the name of a program."""
    return argument[:1] not in ("", "-") and " " not in argument and "=" not in argument


def _takes_no_return(interpreter: str, argument: str) -> bool:
    """Returns whether a carriage return at the end of the first line keeps a script from running.

    Some interpreters ignore a carriage return at the end of their argument.
    """
    return not argument or os.path.basename(interpreter).startswith(_STRICT)


def _not_a_program(program: str, head: bytes) -> str:
    """Returns the sentence for an executable file of a format that the system does not know."""
    if not head:
        return f"{program!r} could not be started: it is empty"
    if head.startswith((b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")):
        return f"{program!r} could not be started: it was built for another kind of machine"
    if head.startswith(_BYTE_ORDER_MARK + b"#!"):
        remedy = f"remove it with: sed -i '1s/^\\xef\\xbb\\xbf//' {program}"
        problem = (
            f"{program!r} could not be started: it begins with a byte order mark, so its first line"
            " names no interpreter"
        )
        return f"{problem}; {remedy}"
    remedy = "begin it with one such as #!/bin/sh, or name the interpreter before it"
    return f"{program!r} could not be started: its first line names no interpreter; {remedy}"
