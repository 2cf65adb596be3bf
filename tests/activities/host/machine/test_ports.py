"""Ports and GPUs that nobody else on the machine has."""

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from iris.activities.host.machine.ports import Gpus, Ports, TakenGpus, TakenPorts
from iris.activities.host.runtimes.base import HostFault

#: Another agent: takes a port of those given, starts a program that inherits the lock, says which
#: port and who, and stays.
AGENT = """
import subprocess, sys, time
from pathlib import Path
from iris.activities.host.machine.ports import Ports
taken = Ports(Path(sys.argv[1]), [range(31000, 31002)]).take(["http"])
program = subprocess.Popen(["sleep", "1000"], pass_fds=taken.keep)
print(taken.numbers["http"], program.pid, flush=True)
time.sleep(1000)
"""


def give_back(taken: TakenPorts | TakenGpus) -> None:
    for descriptor in taken.keep:
        os.close(descriptor)


def few(directory: Path) -> Ports:
    return Ports(directory, [range(31_000, 31_002)])


def test_each_name_has_a_port_of_its_own_within_the_range(tmp_path: Path) -> None:
    """And nothing listens there."""
    taken = Ports(tmp_path).take(["http", "metrics", "debug"])

    assert list(taken.numbers) == ["http", "metrics", "debug"]
    assert len(set(taken.numbers.values())) == 3
    assert all(30_000 <= port < 40_000 for port in taken.numbers.values())
    for port in taken.numbers.values():
        with socket.create_server(("127.0.0.1", port)):
            pass
    give_back(taken)


def test_a_task_without_ports_takes_none(tmp_path: Path) -> None:
    """Most have none, and need no locks."""
    assert Ports(tmp_path).take([]) == ({}, ())


def test_two_attempts_never_have_the_same_port_and_one_that_is_given_back_is_free(
    tmp_path: Path,
) -> None:
    """Also when the program of the first does not listen yet."""
    first = few(tmp_path).take(["a"])
    second = few(tmp_path).take(["a"])
    with pytest.raises(HostFault, match="1 ports are requested and 0 are free") as caught:
        few(tmp_path).take(["a"])
    give_back(first)
    third = few(tmp_path).take(["a"])

    assert caught.value.fault == "ports"
    assert {first.numbers["a"], second.numbers["a"]} == {31_000, 31_001}
    assert third.numbers == first.numbers
    give_back(second)
    give_back(third)


def test_ports_that_are_too_few_are_all_given_back(tmp_path: Path) -> None:
    """Otherwise one attempt that cannot start would keep others from starting."""
    with pytest.raises(HostFault, match="3 ports are requested and 2 are free"):
        few(tmp_path).take(["a", "b", "c"])

    give_back(few(tmp_path).take(["a", "b"]))


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_port_that_somebody_else_listens_on_is_passed_over(tmp_path: Path, address: str) -> None:
    """Not everybody on the machine is a task of Iris'."""
    with socket.create_server((address, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(HostFault):
            Ports(tmp_path, [[port]]).take(["a"])


def test_a_port_is_its_programs_until_that_is_gone_even_when_its_agent_is_killed(
    tmp_path: Path,
) -> None:
    """The next agent goes on with the program, and another agent of the machine must not give its
    port away.
    """
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert agent.stdout is not None
    port, program = map(int, agent.stdout.readline().split())
    try:
        agent.kill()
        agent.wait()
        mine = few(tmp_path).take(["a"])
        assert mine.numbers["a"] != port
        with pytest.raises(HostFault):
            few(tmp_path).take(["b"])
        with os.fdopen(os.pidfd_open(program)) as gone:
            os.kill(program, signal.SIGKILL)
            select.select([gone], [], [], 10)
        after = few(tmp_path).take(["b"])
        assert after.numbers["b"] == port
        give_back(mine)
        give_back(after)
    finally:
        agent.stdout.close()


def test_locks_that_cannot_be_used_are_a_fault_of_the_host(tmp_path: Path) -> None:
    """Another host may do better."""
    (tmp_path / "file").touch()
    with pytest.raises(HostFault, match="cannot be used") as caught:
        Ports(tmp_path / "file").take(["a"])

    assert caught.value.fault == "ports"


def test_gpus_are_had_by_one_attempt_at_a_time(tmp_path: Path) -> None:
    """Two programs on one would run out of its memory."""
    four = ["GPU-a", "GPU-b", "GPU-c", "GPU-d"]
    first, second = Gpus(tmp_path).take(2, four), Gpus(tmp_path).take(1, four)
    with pytest.raises(HostFault, match="2 gpus are requested and 1 are free") as caught:
        Gpus(tmp_path).take(2, four)
    give_back(first)
    third = Gpus(tmp_path).take(2, four)

    assert caught.value.fault == "gpus"
    assert (first.names, second.names, third.names) == (
        ("GPU-a", "GPU-b"),
        ("GPU-c",),
        ("GPU-a", "GPU-b"),
    )
    give_back(second)
    give_back(third)


def test_a_gpu_is_known_after_the_numbers_of_the_gpus_have_changed(tmp_path: Path) -> None:
    """When a GPU is lost, those after it move up. A program that holds one keeps it under its new
    number.
    """
    held = Gpus(tmp_path).take(2, ["GPU-a", "GPU-b", "GPU-c"])
    left = ["GPU-b", "GPU-c"]
    with pytest.raises(HostFault):
        Gpus(tmp_path).take(2, left)
    give_back(held)
    taken = Gpus(tmp_path).take(2, left)

    assert taken.names == ("GPU-b", "GPU-c")
    give_back(taken)
