"""The cgroup of an attempt: on this machine as it is, and in the shapes that other machines
have.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from iris.activities.host.runtimes.process import cgroups
from iris.activities.host.runtimes.process.runtime import ProcessRuntime
from iris.activities.host.runtimes.process_limit import most_processes
from iris.model.units import MIB
from tests.builders import some

KEY = f"ada/train:0@1/{os.getpid()}"
#: As somebody who may do nothing: what is made, and what is said.
NOBODY = """
import os
from iris.activities.host.runtimes.process import cgroups
from iris.model.host.resources import Resources
if os.getuid() == 0:
    os.setgid(65534), os.setuid(65534)
print(cgroups.make("key", Resources(memory_bytes=1 << 30)), cgroups.why_not())
"""


def name(key: str) -> str:
    return f"iris-{hashlib.sha256(key.encode()).hexdigest()[:20]}"


def groups_left(runtime: ProcessRuntime) -> list[Path]:
    """The groups of a runtime's attempt that are still here."""
    return [
        Path(path) for path, _, _ in os.walk("/sys/fs/cgroup") if path.endswith(name(runtime._key))
    ]


class Machine:
    """A machine's cgroup file systems, as directories; a write goes to a file that is there, as in
    the kernel's.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.proc = root / "proc"
        self.proc.mkdir()
        self.mounted = root / "cgroup"
        self.mounted.mkdir()

    def is_in(self, *groups: str) -> None:
        (self.proc / "cgroup").write_text("".join(f"{group}\n" for group in groups))

    def mounts(self, *lines: str) -> None:
        (self.proc / "mountinfo").write_text("".join(f"{line}\n" for line in lines))

    def has(self, group: str, **files: str) -> Path:
        """A group with these files, a name with `__` for each dot."""
        directory = self.mounted / group
        directory.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            (directory / file.replace("__", ".")).write_text(content)
        return directory

    def make(self, cpu: float = 2, memory: float = 1) -> tuple[str, ...]:
        return cgroups.make(KEY, some(cpu=cpu, memory=memory), self.proc)

    @property
    def why_not(self) -> str:
        return cgroups.why_not(self.proc)


@pytest.fixture
def second(tmp_path: Path) -> Machine:
    """Version 2; the agent is a service of the system's."""
    machine = Machine(tmp_path)
    machine.mounts(
        f"29 23 0:26 / {machine.mounted} rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
    )
    machine.is_in("0::/system.slice/iris.service")
    machine.has("system.slice/iris.service")
    files = {
        "cgroup__controllers": "cpu io memory pids\n",
        "cgroup__subtree_control": "cpu memory\n",
        "cgroup__procs": "",
    }
    machine.has("system.slice", **files)
    return machine


def made_before(machine: Machine) -> Path:
    """The attempt's group, with the files that the kernel would put there."""
    files = dict.fromkeys(
        ("memory__max", "memory__oom__group", "memory__swap__max", "cpu__weight", "pids__max"), ""
    )
    return machine.has(f"system.slice/{name(KEY)}", **files)


def test_in_version_2_a_group_stands_beside_the_agent_with_limits_for_all_of_it(
    second: Machine,
) -> None:
    """The agent's own may not pass controllers on while the agent is in it."""
    group = made_before(second)

    assert second.make(cpu=2.5, memory=1) == (str(group),)
    assert {file.name: file.read_text() for file in group.iterdir()} == {
        "memory.max": str(1024**3),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "cpu.weight": "250",
        "pids.max": str(most_processes()),
    }


def test_memory_that_was_not_asked_for_is_not_limited(second: Machine) -> None:
    """Zero bytes means that nobody said; the group still keeps the program together."""
    group = made_before(second)

    assert second.make(memory=0) == (str(group),)
    assert (group / "memory.max").read_text() == ""


def test_controllers_that_are_not_passed_on_yet_are_asked_for(second: Machine) -> None:
    """As in a slice where nothing had limits so far."""
    control = second.has("system.slice", cgroup__subtree_control="") / "cgroup.subtree_control"
    group = made_before(second)

    assert second.make() == (str(group),)
    # +pids, +memory and +cpu: here they lie over each other.
    assert control.read_text() == "+cpuory"


def test_a_system_without_the_memory_controller_says_so(second: Machine) -> None:
    """And the program runs all the same."""
    second.has("system.slice", cgroup__controllers="cpu pids\n")

    assert second.make() == ()
    assert second.why_not.startswith(
        "memory limits are not enforced: the memory controller is not available in"
    )
    assert "run the agent as root" in second.why_not


def test_a_system_without_the_pids_controller_limits_memory_and_says_so(second: Machine) -> None:
    """A fork bomb is then the machine's trouble, which its operator has to know."""
    (made_before(second) / "pids.max").unlink()

    assert second.make() != ()
    (second.mounted / "system.slice" / name(f"trial of {os.getpid()}")).mkdir()
    for file in ("memory.max", "memory.oom.group", "memory.swap.max", "cpu.weight"):
        (second.mounted / "system.slice" / name(f"trial of {os.getpid()}") / file).touch()
    assert second.why_not.startswith(
        "the number of a task's processes is not limited: there is no pids controller"
    )


def test_a_group_that_no_process_could_enter_is_none(second: Machine) -> None:
    """The program would not start at all."""
    second.has(
        made_before(second).relative_to(second.mounted).as_posix(), cgroup__type="domain invalid\n"
    )
    assert second.make() == ()
    (second.mounted / "system.slice" / "cgroup.procs").unlink()
    assert second.make() == ()
    assert "may not move processes" in second.why_not


def test_a_group_without_the_kernels_files_is_none(second: Machine) -> None:
    """Half a limit is none; nothing is left behind."""
    assert second.make() == ()
    assert not (second.mounted / "system.slice" / name(KEY)).exists()
    assert second.why_not


def test_a_machine_that_says_nothing_of_cgroups_has_none(tmp_path: Path) -> None:
    """Such as one that runs no Linux."""
    machine = Machine(tmp_path)
    assert (machine.make(), machine.why_not != "") == ((), True)
    machine.mounts("23 1 8:1 / / rw - ext4 /dev/sda1 rw")
    machine.is_in("0::/")
    assert (machine.make(), "no memory cgroups" in machine.why_not) == ((), True)


def test_in_a_container_groups_are_looked_for_where_they_are_mounted(tmp_path: Path) -> None:
    """There the paths of the host's hierarchy do not begin at its root."""
    machine = Machine(tmp_path)
    space = machine.root / "with space"
    mounted = str(space).replace(" ", "\\040")
    pids = machine.root / "pids"
    machine.mounts(
        f"40 30 0:31 /docker/abc {mounted} rw - cgroup cgroup rw,memory",
        f"41 30 0:32 /docker/abc {pids} rw - cgroup cgroup rw,pids",
    )
    machine.is_in(
        "4:memory:/docker/abc/agent", "1:cpu,cpuacct:/docker/abc", "2:pids:/docker/abc/agent"
    )
    group, numbers = space / "agent" / name(KEY), pids / "agent" / name(KEY)
    group.mkdir(parents=True)
    numbers.mkdir(parents=True)
    for file in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
        (group / file).touch()
    (numbers / "pids.max").touch()

    assert machine.make(memory=1) == (str(group), str(numbers))
    assert [file.read_text() for file in group.iterdir()] == [str(1024**3)] * 2
    assert (numbers / "pids.max").read_text() == str(most_processes())


def test_a_user_without_rights_has_no_groups_and_is_told_what_would_help() -> None:
    """Tasks run; that nobody is held to its memory must be known."""
    ran = subprocess.run([sys.executable, "-c", NOBODY], capture_output=True, text=True, check=True)

    assert ran.stdout.startswith("() memory limits are not enforced: ")
    assert "run the agent as root, or delegate a cgroup" in ran.stdout


def test_a_group_is_removed_with_whoever_is_in_it_and_what_they_made_below() -> None:
    """Safe to repeat, and for what was never made."""
    cgroups.remove(KEY)
    made = cgroups.make(KEY, some(cpu=1, memory=64 * MIB / 1024**3))
    assert bool(made) != bool(cgroups.why_not())
    sleeper = subprocess.Popen(["sleep", "1000"])
    try:
        for group in made:
            below = Path(group) / "below"
            below.mkdir()
            (below / "cgroup.procs").write_text(str(sleeper.pid))
        cgroups.remove(KEY)
        assert [group for group in made if Path(group).exists()] == []
        if made:
            assert sleeper.wait(60) == -9
    finally:
        sleeper.kill()
        sleeper.wait()
    cgroups.remove(KEY, *made, str(Path(os.sep, "tmp")))
