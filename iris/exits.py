"""How a program ended, in words: exit codes, signals, memory. Pure; the signal numbers are those of Linux."""

import signal
from typing import NamedTuple

from iris.units import format_bytes

#: What shells add to the number of the signal that ended their child.
SHELL = 128


class End(NamedTuple):
    """An exit status, explained."""

    #: As a shell tells it: 128 and the signal's number for a program that was killed.
    exit_code: int
    #: The signal's name, if one ended it.
    signal: str | None
    reason: str


def explain(status: int, *, out_of_memory: bool = False, memory_limit: int = 0) -> End:
    """The end of a program that did not end well.

    Args:
        status: its exit code; negative: the signal that killed it.
        out_of_memory: the kernel has killed it, or a part of it, because its memory was used up.
        memory_limit: how much it had, in bytes; 0: unlimited.
    """
    code = SHELL - status if status < 0 else status
    name = signal_name(-status) if status < 0 else None
    reason = f"killed by {name}" if name else f"exited with code {status}"
    if name is None and SHELL < status < SHELL + signal.NSIG:
        reason += f", as shells say of a program that {signal_name(status - SHELL)} has killed"
    if out_of_memory:
        limit = f" (its limit is {format_bytes(memory_limit)})" if memory_limit else ""
        reason = f"ran out of memory{limit}: {reason}"
    return End(code, name, reason)


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; real-time signals but for the first and the last have no names."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
