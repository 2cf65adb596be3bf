"""What a machine's answer means for a new cluster. The machines themselves answer in
`tests/cli/cluster/test_cluster_init.py`.
"""

import pytest

from iris.platforms.manual.runtime import MACHINE, PYTHON
from iris.platforms.manual.settings import HostAccess
from iris.platforms.manual.survey import read_survey

HOST = HostAccess(address="m1", user="ada")
NOW = 1_800_000_000.0
ANSWER = {
    "system": f"Linux {MACHINE}",
    "python": PYTHON,
    "cores": "4",
    "memory": "8388608",
    "disk": "8388608",
}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (
            {"system": "Linux riscv64"},
            f"is Linux riscv64, and the packages of this machine are for Linux {MACHINE}",
        ),
        ({"system": "Darwin arm64", "memory": ""}, "is Darwin arm64"),
        (
            {"python": None, "other": "Python 3.9.2"},
            f"has Python 3.9.2, and the agent needs Python {PYTHON} as here; install",
        ),
        ({"python": None, "other": ""}, "has no Python, and the agent needs"),
        ({"disk": "1024"}, "has 1 MiB of disk free, and the agent needs 256 MiB"),
        (
            {"readonly": "/home/ada"},
            "the user's home directory /home/ada is not writable; Iris keeps its files there",
        ),
        ({"cores": ""}, "does not report its cores, memory and disk, but '', '8388608', '8388608'"),
        (
            {"tpu": "v5litepod-16"},
            "is one of the 4 machines of a TPU slice v5litepod-16; slices of several machines need",
        ),
    ],
)
def test_a_machine_that_cannot_be_a_host_says_why(
    answer: dict[str, str | None], problem: str
) -> None:
    """With what its owner has to change."""
    given = {key: value for key, value in {**ANSWER, **answer}.items() if value is not None}

    report, (note,) = read_survey(HOST, given, now=NOW)

    assert report is None
    assert note.startswith(problem)


def test_a_machine_with_a_tpu_offers_its_chips() -> None:
    """Those of a slice of one machine."""
    report, notes = read_survey(HOST, {**ANSWER, "tpu": "v5litepod-4"}, now=NOW)
    assert report is not None
    assert (str(report.device), notes) == ("tpu:v5litepod-4:4", ())


def test_a_driver_that_fails_is_a_warning_and_no_reason_to_leave_the_machine_out() -> None:
    """Its processors work, and its owner learns that the GPUs do not."""
    report, (note,) = read_survey(
        HOST, {**ANSWER, "nvidia": "9", "queried": "", "listed": ""}, now=NOW
    )
    assert report is not None
    assert report.device is None
    assert note == "nvidia-smi fails with exit code 9; it offers no GPU"


@pytest.mark.parametrize(
    ("clock", "note"),
    [
        ("1799913600", "its clock is 1d behind that of this machine; buckets refuse its requests"),
        (
            "1800086400",
            "its clock is 1d ahead of that of this machine; buckets refuse its requests",
        ),
        ("1799999900", ""),
        ("", ""),
    ],
)
def test_a_clock_that_is_wrong_is_a_warning_with_its_consequence(clock: str, note: str) -> None:
    """Otherwise jobs fail later, when a bucket refuses the host's requests. Iris itself compares no
    clocks of machines.
    """
    report, notes = read_survey(HOST, {**ANSWER, "clock": clock}, now=NOW)

    assert report is not None
    assert "".join(notes).startswith(note)
    assert bool(notes) == bool(note)
