"""The supervisor of local machines runs exactly the requested agents, whatever process dies."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from iris.client.connect.clusters import ProcessRef
from iris.model import names
from iris.model.host.hosts import Host
from iris.model.slice.provisioning import DeleteResult, MachineState, SliceRequest
from iris.platforms.local import REQUEST, LocalPlatform, agent_directory
from iris.processes.children import Restarts
from iris.worker_agents.local.local_machines import LocalMachines
from tests.builders import a_host
from tests.platforms.worlds import a_group, a_room, until, wanted

SLEEPS = "exec sleep 1000"


class Place:
    """A directory of slices, and what their agents do: shell programs that say in a file that they
    have begun.
    """

    def __init__(self, root: Path) -> None:
        self.dir, self.logs, self.said = root / "slices", root / "logs", root / "said"
        self.said.mkdir()
        self.platform = LocalPlatform(self.dir)
        #: By host or slice; all others sleep.
        self.programs: dict[str, str] = {}

    def command(self, request: SliceRequest, host: Host) -> list[str]:
        program = self.programs.get(host.id) or self.programs.get(request.slice_id) or SLEEPS
        return ["sh", "-c", f"echo $$ >> {self.said}/{host.id}; {program}"]

    def pids(self, host_id: str) -> list[int]:
        """The process numbers of the host's agents, one after the other."""
        path = self.said / host_id
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def recorded(self, slice_id: str) -> dict[str, ProcessRef]:
        """What runs of a slice, as the room has written it down."""
        path = self.dir / slice_id / "machines.json"
        return LocalMachines.model_validate_json(path.read_text()).agents if path.exists() else {}

    async def create(self, slice_id: str, hosts: int = 2) -> list[str]:
        """Ask for a slice; the ids of its hosts."""
        request = wanted(slice_id, a_group(hosts=hosts))
        await self.platform.create_slice(request)
        return [host.id for host in request.group.slice_hosts(slice_id, request.zone)]

    async def state(self, slice_id: str) -> MachineState | None:
        seen = await self.platform.describe_slice(slice_id, "west4-a")
        return seen and seen.state

    async def up(self, slice_id: str, hosts: int = 2) -> list[ProcessRef]:
        """The agents of the slice, as soon as all of them run and have said so."""
        host_ids = await self.create(slice_id, hosts)

        async def running() -> list[ProcessRef]:
            agents = self.recorded(slice_id)
            begun = [
                agents[each]
                for each in host_ids
                if each in agents and agents[each].pid in self.pids(each)
            ]
            whole = len(begun) == hosts and all(ref.alive() for ref in begun)
            return begun if whole and await self.state(slice_id) is MachineState.ACTIVE else []

        return await until(running)

    async def restarted(self, host_id: str) -> None:
        """Wait until the host has another agent than the last one that has begun."""
        begun = len(self.pids(host_id))
        await until(lambda: len(self.pids(host_id)) > begun)

    async def gone(self, slice_id: str) -> bool:
        return await self.platform.delete_slice(slice_id, "west4-a") is DeleteResult.GONE


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def alive(agents: list[ProcessRef]) -> list[bool]:
    return [agent.alive() for agent in agents]


async def test_every_host_of_a_slice_has_an_agent_with_a_session_and_a_log_of_its_own(
    place: Place,
) -> None:
    """So one can be killed without the others, and has its output under its name."""
    place.programs["pair"] = f"echo this is $$; {SLEEPS}"
    async with a_room(place.dir, place.command, place.logs):
        agents = await place.up("pair")

        assert [os.getsid(agent.pid) for agent in agents] == [agent.pid for agent in agents]
        for worker, agent in enumerate(agents):
            log = place.logs / f"pair-w-{worker}.log"
            await until(lambda log=log: log.exists() and log.read_text())
            assert log.read_text() == f"this is {agent.pid}\n"


async def test_hosts_that_share_a_process_start_again_with_it(place: Place) -> None:
    """One process serves the slice, each host's log is found by the host's name, and nothing is
    left of a deleted slice.
    """

    def together(request: SliceRequest) -> list[str] | None:
        return place.command(request, a_host(request.slice_id)) if request.group.hosts > 2 else None

    place.programs["large"] = f"echo this is $$; {SLEEPS}"
    async with a_room(place.dir, place.command, place.logs, slice_command=together):
        small = await place.up("small")
        hosts = await place.create("large", hosts=3)
        await until(lambda: place.pids("large") and place.recorded("large"))
        (first,) = place.recorded("large").values()
        assert await place.state("large") is MachineState.ACTIVE
        os.kill(first.pid, signal.SIGKILL)
        await until(
            lambda: len(place.pids("large")) == 2 and place.recorded("large")["large"] != first
        )
        (second,) = place.recorded("large").values()
        log = f"this is {first.pid}\nthis is {second.pid}\n"
        await until(lambda: (place.logs / "large.log").read_text() == log)
        assert [(place.logs / f"{host}.log").read_text() for host in hosts] == [log] * 3
        assert [place.pids(host) for host in hosts] == [[], [], []]
        await until(lambda: place.gone("large"))
        assert (second.alive(), alive(small)) == (False, [True, True])


async def test_an_agent_that_dies_is_restarted_alone(place: Place) -> None:
    """The simulated machines still exist: a slice is not lost with a process."""
    async with a_room(place.dir, place.command, place.logs):
        first, second = await place.up("pair")
        os.kill(first.pid, signal.SIGKILL)
        await place.restarted("pair-w-0")
        again, still = await place.up("pair")

        assert again.pid != first.pid
        assert (still, second.alive()) == (second, True)


async def test_a_slice_is_gone_only_after_its_processes(place: Place) -> None:
    """GONE is a promise; other slices keep their processes."""
    async with a_room(place.dir, place.command, place.logs):
        going, staying = await place.up("going"), await place.up("staying")
        await until(lambda: place.gone("going"))

        assert (alive(going), alive(staying)) == ([False, False], [True, True])
        assert [path.name for path in place.dir.iterdir() if path.name[0] != "."] == ["staying"]


async def test_the_agents_of_a_slice_stop_together(place: Place) -> None:
    """One after the other would take the sum of their grace periods."""
    place.programs["pair"] = (
        f"cd {place.said}; trap 'touch $$.leaves; until [ $(ls *.leaves | wc -l) = 2 ]; do sleep"
        " 0.02; done; touch $$.left; exit 0' TERM; while :; do sleep 0.02; done"
    )
    async with a_room(place.dir, place.command, place.logs):
        agents = await place.up("pair")
        await until(lambda: place.gone("pair"))

    assert {path.stem for path in place.said.glob("*.left")} == {str(agent.pid) for agent in agents}


async def test_an_agent_that_does_not_stop_is_killed(place: Place) -> None:
    """A slice that cannot be deleted would exist for ever."""
    place.programs["stubborn"] = "trap '' TERM; while :; do sleep 0.02; done"
    async with a_room(place.dir, place.command, place.logs, patience=timedelta(seconds=0.2)):
        agents = await place.up("stubborn")
        await until(lambda: place.gone("stubborn"))

    assert alive(agents) == [False, False]


async def test_a_slow_stop_delays_no_other_slice(place: Place) -> None:
    """Neither starts nor stops."""
    waits = f"until [ -e {place.said}/may ]; do sleep 0.02; done; exit 0"
    place.programs["slow"] = f"trap '{waits}' TERM; while :; do sleep 0.02; done"
    async with a_room(place.dir, place.command, place.logs):
        await place.up("slow")
        assert not await place.gone("slow")
        await place.up("quick")
        await until(lambda: place.gone("quick"))

        assert await place.state("slow") is MachineState.DELETING
        (place.said / "may").touch()
        await until(lambda: place.gone("slow"))


async def test_agents_stop_with_the_supervisor_and_start_with_the_next(place: Place) -> None:
    """As machines do after a power failure: their slices still exist."""
    async with a_room(place.dir, place.command, place.logs):
        before = await place.up("pair")
    assert (alive(before), await place.state("pair")) == ([False, False], MachineState.ACTIVE)

    async with a_room(place.dir, place.command, place.logs):
        after = await place.up("pair")
        assert {agent.pid for agent in after}.isdisjoint(agent.pid for agent in before)


async def test_a_slice_deleted_without_a_supervisor_never_runs_again(place: Place) -> None:
    """Nor does one that was requested and deleted before the first supervisor."""
    async with a_room(place.dir, place.command, place.logs):
        await place.up("old")
    await place.create("never")
    for slice_id in ("old", "never"):
        assert not await place.gone(slice_id)
    begun = place.pids("old-w-0")

    async with a_room(place.dir, place.command, place.logs):
        for slice_id in ("old", "never"):
            await until(lambda slice_id=slice_id: place.gone(slice_id))
    assert (place.pids("old-w-0"), place.pids("never-w-0")) == (begun, [])


async def test_a_slice_deleted_without_a_supervisor_is_gone_only_after_its_programs(
    place: Place,
) -> None:
    """Programs outlive an agent that was killed. A slice that is gone promises that none runs: the
    next attempts start then.
    """
    (host,) = await place.create("old", hosts=1)
    with a_program(host) as program:
        assert not await place.gone("old")
        async with a_room(place.dir, place.command, place.logs):
            await until(lambda: place.gone("old"))
        assert program.poll() is not None


async def test_a_slice_whose_request_is_damaged_is_gone_only_after_its_programs(
    place: Place,
) -> None:
    """A full disk may damage it. The directories of its hosts still say whose programs run."""
    (host,) = await place.create("old", hosts=1)
    agent_directory(place.dir / "old", host).mkdir(parents=True)
    with a_program(host) as program:
        (place.dir / "old" / REQUEST).write_text("{")
        assert not await place.gone("old")
        async with a_room(place.dir, place.command, place.logs):
            await until(lambda: place.gone("old"))
        assert program.poll() is not None


@contextlib.contextmanager
def a_program(host_id: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of an attempt on this host."""
    marks = {names.ENV_ATTEMPT_KEY: "ada/train:0@1/run", names.ENV_HOST_ID: host_id}
    with subprocess.Popen(["sleep", "1000"], env=os.environ | marks) as program:
        try:
            yield program
        finally:
            program.kill()


@pytest.fixture
def stray() -> Iterator[ProcessRef]:
    """A process that nobody looks after."""
    process = subprocess.Popen(["sleep", "1000"])
    ref = ProcessRef.of(process.pid)
    assert ref is not None
    yield ref
    process.kill()
    process.wait()


@pytest.mark.parametrize("same", [True, False])
async def test_agents_of_a_killed_supervisor_are_killed_but_not_a_process_with_a_reused_pid(
    place: Place, stray: ProcessRef, same: bool
) -> None:
    """Two agents of one host would conflict; and process ids are reused."""
    await place.create("pair")
    ref = stray if same else stray.model_copy(update={"created": stray.created - 1})
    left = LocalMachines(state=MachineState.ACTIVE, agents={"pair-w-0": ref})
    (place.dir / "pair" / "machines.json").write_text(left.model_dump_json())
    async with a_room(place.dir, place.command, place.logs):
        await place.up("pair")
        assert stray.alive() is not same


async def test_a_program_that_cannot_start_is_retried_and_its_slice_is_not_active(
    place: Place,
) -> None:
    """Until a person repairs it or deletes the slice."""
    program = place.said / "program"
    async with a_room(place.dir, lambda request, host: [str(program)], place.logs):
        await place.create("pair")
        # Both hosts have a log once they have been tried.
        await until(lambda: len(list(place.logs.glob("pair-w-*.log"))) == 2)
        assert await place.state("pair") is MachineState.CREATING
        mended = place.said / "mended"
        mended.write_text(f"#!/bin/sh\n{SLEEPS}\n")
        mended.chmod(0o755)
        mended.rename(program)

        async def active() -> bool:
            return await place.state("pair") is MachineState.ACTIVE

        await until(active)


async def test_agents_that_crash_at_once_are_retried_and_can_be_deleted(place: Place) -> None:
    """At any point of the retry loop."""
    place.programs["crashing"] = "exit 3"
    async with a_room(place.dir, place.command, place.logs):
        hosts = await place.create("crashing")
        await until(lambda: all(len(place.pids(host)) >= 4 for host in hosts))
        await until(lambda: place.gone("crashing"))


def test_the_restart_delay_grows_with_early_exits_and_resets_after_a_long_run() -> None:
    """A broken agent must not use the cores; a good one must restart quickly."""
    early, late = timedelta(seconds=9), timedelta(seconds=10)
    pauses = [timedelta()]
    for lived in (early, early, early, early, early, early, early, late, early):
        pauses.append(Restarts().after(lived, pauses[-1]))

    assert [pause.total_seconds() for pause in pauses[1:]] == [1, 2, 4, 8, 16, 30, 30, 1, 2]


async def test_an_unreadable_slice_is_ignored_until_it_is_deleted(place: Place) -> None:
    """It delays no other slice."""
    (place.dir / "odd").mkdir(parents=True)
    async with a_room(place.dir, place.command, place.logs):
        await place.up("good")
        assert await place.state("odd") is MachineState.FAILED
        await until(lambda: place.gone("odd"))


async def test_a_slice_stops_when_its_directory_is_removed(place: Place) -> None:
    """No agent may run that no list shows."""
    async with a_room(place.dir, place.command, place.logs):
        agents = await place.up("pair")
        (place.dir / "pair").rename(place.dir.parent / "elsewhere")
        await until(lambda: not any(alive(agents)))


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells a process that its parent has died"
)
async def test_agents_die_with_a_killed_supervisor(place: Place) -> None:
    """They would run on without a process that can stop them."""
    script = f"""
import asyncio, pathlib
from iris.worker_agents.local.local_machines import MachineSupervisor
command = lambda request, host: ["sh", "-c", f"echo $$ >> {place.said}/{{host.id}}; {SLEEPS}"]
room = MachineSupervisor(pathlib.Path({str(place.dir)!r}), command, pathlib.Path({str(place.logs)!r}))
asyncio.run(room.run(asyncio.Event()))
"""
    room = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    try:
        agents = await place.up("pair")
    finally:
        room.kill()
        await room.wait()
    await until(lambda: not any(alive(agents)))
