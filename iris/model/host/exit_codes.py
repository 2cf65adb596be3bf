"""Explains the exit status of a program that failed: exit codes, signals, memory limits."""

import signal
from typing import NamedTuple

from iris.model.units import format_bytes

#: The number that a shell adds to the number of a signal. The sum is the exit code of a shell whose
#: child was ended by the signal.
SHELL = 128


class End(NamedTuple):
    """An exit status with its explanation."""

    #: The exit code as a shell reports it: 128 plus the signal's number for a program that a signal
    #: killed.
    exit_code: int
    #: The name of the signal that ended the program, or None.
    signal: str | None
    reason: str


def explain(status: int, *, out_of_memory: bool = False, memory_limit: int = 0) -> End:
    """Explains the exit status of a program that failed.

    Args:
        status: the exit code, or the negative number of the signal that killed the program.
        out_of_memory: whether the kernel killed a process of the program because the program
            reached its memory limit.
        memory_limit: the limit in bytes; 0 for none.
    """
    code = SHELL - status if status < 0 else status
    name = signal_name(-status) if status < 0 else None
    reason = f"killed by {name}" if name else f"exited with code {status}"
    if name is None and SHELL < status < SHELL + signal.NSIG:
        reason += f" (a shell's code for a program killed by {signal_name(status - SHELL)})"
    if out_of_memory:
        limit = f" (its limit is {format_bytes(memory_limit)})" if memory_limit else ""
        reason = f"ran out of memory{limit}: {reason}"
    return End(code, name, reason)


def signal_name(number: int) -> str:
    """Returns `SIGKILL` for 9. Real-time signals except the first and the last have no names."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
