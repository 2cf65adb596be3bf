"""The reason of a program that failed, by its exit status."""

import pytest

from iris.model.host.exit_codes import explain


@pytest.mark.parametrize(
    ("status", "exit_code", "reason"),
    [
        (3, 3, "exited with code 3"),
        (-15, 143, "killed by SIGTERM"),
        (-40, 168, "killed by signal 40"),
        (137, 137, "exited with code 137 (a shell's code for a program killed by SIGKILL)"),
    ],
)
def test_a_program_ended_by_its_code_or_by_a_signal(
    status: int, exit_code: int, reason: str
) -> None:
    """The exit code is that of a shell, and rare signals have only a number."""
    end = explain(status)

    assert (end.exit_code, end.reason) == (exit_code, reason)


def test_a_program_that_used_up_its_memory_names_its_limit() -> None:
    """SIGKILL alone would look like the deed of an operator."""
    limited = explain(-9, out_of_memory=True, memory_limit=2**30)

    assert limited.reason == "ran out of memory (its limit is 1 GiB): killed by SIGKILL"
    assert explain(-9, out_of_memory=True).reason == "ran out of memory: killed by SIGKILL"
