"""What the platform of machines over SSH says about machines that it cannot use, against real
`sshd` processes.
"""

import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from iris.model.slice.provisioning import DeleteResult, MachineState
from iris.platforms.base import BadConfig, PlatformError, StockOut, Unavailable
from iris.platforms.manual.connections import Connections
from iris.platforms.manual.keeper import HostKeeper
from iris.platforms.manual.platform import ManualPlatform
from iris.platforms.manual.settings import HostAccess
from tests.platforms.worlds import MANUAL_KIND, ManualWorld, a_group, no_packages, wanted
from tests.small_disk import small_disk
from tests.sshd import Machine, machines, make_key

REQUEST = wanted(group=a_group(**MANUAL_KIND))


@pytest.fixture
def lab(sshd: None, tmp_path: Path) -> Iterator[list[Machine]]:
    """Two machines."""
    with machines(tmp_path, 2, first=11) as found:
        yield found


@pytest.fixture
async def world(lab: list[Machine], tmp_path: Path) -> AsyncIterator[ManualWorld]:
    world = ManualWorld(lab, tmp_path / "known_hosts")
    yield world
    for each in world._connections.values():
        await each.close()


def platform(world: ManualWorld, **changes: object) -> ManualPlatform:
    return ManualPlatform(world.settings().model_copy(update=changes))


async def refusal(platform: ManualPlatform) -> str:
    """Why no machine of the group is leased."""
    with pytest.raises(StockOut) as refused:
        await platform.create_slice(REQUEST)
    return str(refused.value)


async def test_a_key_that_a_machine_does_not_accept_is_named(
    world: ManualWorld, tmp_path: Path
) -> None:
    """The user has to know which key was tried, as whom."""
    wrong = make_key(tmp_path / "wrong")
    hosts = {
        "v5e-16": tuple(
            each.model_copy(update={"key_file": wrong}) for each in world.settings().hosts["v5e-16"]
        )
    }

    said = await refusal(platform(world, hosts=hosts))

    assert f"with the key {wrong}; add the public key" in said


async def test_a_changed_host_key_is_refused_and_told_from_an_unknown_one(
    world: ManualWorld, lab: list[Machine], tmp_path: Path
) -> None:
    """A changed key may be an attack, an unknown one is usually a machine that nobody has
    visited.
    """
    lab[0].stop()
    lab[0].new_host_key()
    lab[0].start()
    known = tmp_path / "known_hosts"
    known.write_text(
        "\n".join(line for line in known.read_text().splitlines() if lab[1].address not in line)
        + "\n"
    )

    said = await refusal(platform(world))

    assert f"{lab[0].address}: its host key is not the one in {known}" in said
    assert f"ssh-keygen -f {known} -R '[{lab[0].address}]:{lab[0].port}'" in said
    assert f"{lab[1].address}: its host key is not in {known}; compare and accept it" in said


async def test_others_are_used_while_a_machine_is_down(
    world: ManualWorld, lab: list[Machine]
) -> None:
    """And the list says whose content is unknown, so that nothing there counts as gone."""
    lab[0].stop()
    ours = platform(world)

    await ours.create_slice(REQUEST)
    listing = await ours.list_slices()

    assert [each.slice_id for each in listing.slices] == [REQUEST.slice_id]
    assert set(listing.unreachable) == {"west4-a", "west4-b"}
    assert (
        f"{lab[0].address}: port {lab[0].port} is not reached: Connection refused"
        in listing.unreachable["west4-a"]
    )


async def test_a_slice_on_a_machine_that_is_down_is_not_gone(
    world: ManualWorld, lab: list[Machine]
) -> None:
    """Its lease would stay there. When the machine is back, the deletion continues and leaves
    nothing.
    """
    ours = platform(world)
    await ours.create_slice(REQUEST)
    lab[0].stop()

    with pytest.raises(
        Unavailable, match=f"unknown whether slice {REQUEST.slice_id} is gone: {lab[0].address}: "
    ):
        await platform(world).delete_slice(REQUEST.slice_id, REQUEST.zone)
    lab[0].start()
    back = platform(world)

    assert await back.delete_slice(REQUEST.slice_id, REQUEST.zone) is DeleteResult.GOING
    assert await back.delete_slice(REQUEST.slice_id, REQUEST.zone) is DeleteResult.GONE
    assert lab[0].left() == []


async def test_a_slice_that_found_no_machine_is_gone_although_one_does_not_answer(
    world: ManualWorld, lab: list[Machine]
) -> None:
    """It never had a lease. Otherwise one machine that is down would collect such slices until its
    group is at its maximum.
    """
    lab[0].stop()
    ours = platform(world)
    await ours.create_slice(REQUEST)
    second = REQUEST.model_copy(update={"slice_id": "second"})
    with pytest.raises(StockOut):
        await ours.create_slice(second)

    assert await ours.describe_slice("second", REQUEST.zone) is None
    assert await ours.delete_slice("second", REQUEST.zone) is DeleteResult.LEFT
    lab[1].stop()
    with pytest.raises(
        Unavailable,
        match=f"unknown whether slice {REQUEST.slice_id} is gone: {lab[1].address}: [^;]*$",
    ):
        await ours.delete_slice(REQUEST.slice_id, REQUEST.zone)


async def test_a_full_disk_is_named_others_are_used_and_nothing_is_left_there(
    world: ManualWorld, lab: list[Machine]
) -> None:
    """The lease itself is a file. A disk that fills later does not keep a deletion from its end."""
    with small_disk(lab[0].home / "small", 400) as disk:

        def fill() -> None:
            subprocess.run(
                ["sh", "-c", f"cat /dev/zero >> {disk / 'fill'}"], capture_output=True, check=False
            )

        fill()
        ours = platform(
            world, directory="small/.iris", hosts={REQUEST.group.name: (lab[0].access,)}
        )
        assert f"{lab[0].address}: leasing the machine failed: its disk is full: " in await refusal(
            ours
        )
        (lab[1].home / "small").mkdir()
        both = platform(world, directory="small/.iris")
        await both.create_slice(REQUEST.model_copy(update={"slice_id": "elsewhere"}))

        os.truncate(disk / "fill", 100 * 1024)
        await ours.create_slice(REQUEST)
        fill()
        while await ours.delete_slice(REQUEST.slice_id, REQUEST.zone) is not DeleteResult.GONE:
            pass
        assert [each.name for each in disk.iterdir()] == ["fill"]


async def test_an_exhausted_pool_says_who_has_its_machines(
    world: ManualWorld, lab: list[Machine]
) -> None:
    """Also another cluster, of which this one knows nothing else. Its own slices are only counted:
    there may be hundreds.
    """
    ours, others = platform(world), platform(world, uid="another", cluster="other")
    await ours.create_slice(REQUEST)
    await others.create_slice(REQUEST.model_copy(update={"slice_id": "theirs", "cluster": "other"}))

    with pytest.raises(StockOut) as refused:
        await ours.create_slice(REQUEST.model_copy(update={"slice_id": "third"}))

    assert f"(1 of 2 serve this cluster, {lab[1].address}: is leased to cluster other)" in str(
        refused.value
    )


@pytest.mark.long
async def test_no_slice_begins_on_a_machine_that_is_being_removed(
    world: ManualWorld, lab: list[Machine]
) -> None:
    """The one that is there stays and is deleted as any other, because the machine is still
    visited.
    """
    ours = platform(world)
    await ours.create_slice(REQUEST)
    leaving = platform(world, retiring=frozenset({lab[0].address, lab[1].address}))

    with pytest.raises(StockOut) as refused:
        await leaving.create_slice(REQUEST.model_copy(update={"slice_id": "second"}))

    assert (
        f"(1 of 2 serve this cluster, {lab[1].address}: is being removed (retiring_hosts))"
        in str(refused.value)
    )
    assert [each.slice_id for each in (await leaving.list_slices()).slices] == [REQUEST.slice_id]
    assert set((await leaving.unusable()).values()) == {
        f"has slice {REQUEST.slice_id}",
        "is being removed (retiring_hosts)",
    }
    while await leaving.delete_slice(REQUEST.slice_id, REQUEST.zone) is not DeleteResult.GONE:
        pass
    assert lab[0].left() == []


async def test_a_machine_with_two_names_is_leased_once(
    world: ManualWorld, lab: list[Machine], tmp_path: Path
) -> None:
    """Under each name, one agent would be started, and each start would end the other one."""
    name, alias = lab[0].address, "127.0.11"
    known = tmp_path / "known_hosts"
    known.write_text(known.read_text() + lab[0].known.replace(name, alias))
    attended: list[str] = []
    access = (lab[0].access, lab[0].access.model_copy(update={"address": alias}))
    settings = world.settings().model_copy(update={"hosts": {REQUEST.group.name: access}})
    ours = ManualPlatform(settings, attend=lambda host, request: attended.append(host.address))

    await ours.create_slice(REQUEST)
    with pytest.raises(
        StockOut, match=f"{alias}: is the same machine as {name}; list it only once"
    ):
        await ours.create_slice(REQUEST.model_copy(update={"slice_id": "second"}))
    await ours.list_slices()

    assert set(attended) == {name}
    assert await ours.delete_slice(REQUEST.slice_id, REQUEST.zone) is DeleteResult.GOING
    assert await ours.delete_slice(REQUEST.slice_id, REQUEST.zone) is DeleteResult.GONE
    assert lab[0].left() == []


async def test_what_a_login_prints_is_no_answer(
    world: ManualWorld, lab: list[Machine], tmp_path: Path
) -> None:
    """Banners and start files print what they like."""
    banner = tmp_path / "banner"
    banner.write_text("Welcome\niris:begin\nlease=x\niris:end\n")
    lab[0].stop()
    lab[0].settings = f"Banner {banner}"
    lab[0].start()
    (lab[0].home / ".bashrc").write_text("echo Welcome; echo noise >&2\n")
    ours = platform(world)

    await ours.create_slice(REQUEST)

    assert [each.slice_id for each in (await ours.list_slices()).slices] == [REQUEST.slice_id]


async def test_a_machine_is_reached_through_its_jump_host(
    world: ManualWorld, lab: list[Machine]
) -> None:
    """A lab lets people in at one machine only. Without it, the others are not reached, and the
    reason names it.
    """
    gateway, inner = lab
    jump = f"{gateway.access.user}@{gateway.address}:{gateway.port}"
    behind = inner.access.model_copy(update={"jump_host": jump})
    ours = platform(
        world, hosts={REQUEST.group.name: (behind,)}, zones={REQUEST.group.name: (REQUEST.zone,)}
    )

    assert await ours.unusable() == {}
    gateway.stop()
    again = platform(
        world, hosts={REQUEST.group.name: (behind,)}, zones={REQUEST.group.name: (REQUEST.zone,)}
    )
    assert f"port {gateway.port} " in (await again.unusable())[behind]


# -- keys in a secret manager
# --------------------------------------------------------------------------------------------------

KEY, KNOWN = "projects/p/secrets/key/versions/latest", "projects/p/secrets/known/versions/latest"


def with_secrets(world: ManualWorld, access: Callable[[str], bytes]) -> ManualPlatform:
    """The platform of a control plane that has no files."""
    plain = world.settings()
    hosts = {name: tuple(_in_secret(each) for each in group) for name, group in plain.hosts.items()}
    settings = plain.model_copy(
        update={"hosts": hosts, "known_hosts": Path("/nowhere"), "known_hosts_secret": KNOWN}
    )
    return ManualPlatform(settings, Connections(settings, access=access))


def _in_secret(host: HostAccess) -> HostAccess:
    return host.model_copy(update={"key_file": None, "key_secret": KEY})


async def test_the_key_and_the_known_hosts_may_be_secrets(
    world: ManualWorld, lab: list[Machine], tmp_path: Path
) -> None:
    """A controller in a cloud has no files of its users. Each secret is read once for all
    machines.
    """
    values = {KEY: lab[0].key.read_bytes(), KNOWN: (tmp_path / "known_hosts").read_bytes()}
    read: list[str] = []

    def access(resource: str) -> bytes:
        read.append(resource)
        return values[resource]

    ours = with_secrets(world, access)
    await ours.create_slice(REQUEST)
    listing = await ours.list_slices()

    assert ([each.slice_id for each in listing.slices], listing.unreachable) == (
        [REQUEST.slice_id],
        {},
    )
    assert sorted(read) == [KEY, KNOWN]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (
            {KEY: BadConfig("Secret Manager answers with 403: denied")},
            f"{KEY} cannot be read: Secret Manager answers with 403",
        ),
        (
            {KNOWN: Unavailable("Secret Manager does not answer")},
            f"{KNOWN} cannot be read: Secret Manager does not answer",
        ),
        ({KEY: b"no key"}, f"the key {KEY} cannot be used: "),
        ({KNOWN: b"\xff\xfe"}, f"the known hosts in {KNOWN} cannot be used: "),
        (
            {KNOWN: b""},
            f"its host key is not in {KNOWN}; compare it with the output of: ssh-keyscan -p ",
        ),
    ],
    ids=[
        "a key that may not be read",
        "no answer",
        "no key",
        "no known hosts",
        "an unknown machine",
    ],
)
async def test_a_secret_that_is_no_help_is_named(
    world: ManualWorld,
    lab: list[Machine],
    tmp_path: Path,
    wrong: dict[str, bytes | PlatformError],
    reason: str,
) -> None:
    """Whoever reads it has to know which secret, and never sees its value."""
    values = {KEY: lab[0].key.read_bytes(), KNOWN: (tmp_path / "known_hosts").read_bytes(), **wrong}

    def access(resource: str) -> bytes:
        if isinstance(value := values[resource], PlatformError):
            raise value
        return value

    said = await refusal(with_secrets(world, access))

    assert f"{lab[0].address}: {reason}" in said


@pytest.mark.long
async def test_a_slice_whose_agent_ends_after_each_start_fails_with_its_last_output(
    world: ManualWorld, lab: list[Machine], tmp_path: Path
) -> None:
    """Half an installation or a full disk would else be waited for until the agents are overdue,
    and nobody would know why.
    """
    settings = world.settings()
    connections = Connections(settings, keep=True)
    keeper = HostKeeper(
        settings,
        connections,
        lambda: no_packages(tmp_path),
        command=lambda *_: "-c 'raise SystemExit(\"no such module\")'",
    )
    ours = ManualPlatform(
        settings, connections, attend=keeper.attend, fault_of=keeper.fault_of, avoid=keeper.avoid
    )
    async with keeper.serving():
        await ours.create_slice(REQUEST)

        async def failed() -> bool:
            (seen,) = (await ours.list_slices()).slices
            return seen.state is MachineState.FAILED

        await world.until(failed)
        (seen,) = (await ours.list_slices()).slices
        assert seen.reason.startswith(f"{lab[0].address}: the agent ended after each of 3 starts: ")
        assert seen.reason.endswith("no such module")
        await world.until(partial(_is_gone, ours))
    await connections.close()
    assert lab[0].left() == []


@pytest.mark.long
async def test_an_agent_whose_start_was_cut_off_is_ended_with_its_slice(
    world: ManualWorld, lab: list[Machine], tmp_path: Path
) -> None:
    """The connection may break between the start of the process and its record. It would run on,
    and write files again.
    """
    settings = world.settings()
    connections = Connections(settings, keep=True)
    agent = f"-c 'import time; time.sleep(1000)' --slice {REQUEST.slice_id} --dir \"$home/agent\""
    keeper = HostKeeper(
        settings, connections, lambda: no_packages(tmp_path), command=lambda *_: agent
    )
    ours = ManualPlatform(settings, connections, attend=keeper.attend)

    def agents() -> list[psutil.Process]:
        found = []
        for each in lab[0].processes():
            with suppress(psutil.Error):
                if REQUEST.slice_id in each.cmdline():
                    found.append(each)
        return found

    async with keeper.serving():
        await ours.create_slice(REQUEST)
        await world.until(lambda: len(agents()) == 1)
        await world.until(
            lambda: [each.unlink() for each in lab[0].home.glob(".iris-*/*/agent.pid")]
        )
        await world.until(lambda: len(agents()) == 2)
    await world.until(partial(_is_gone, ours))
    await connections.close()
    assert agents() == []
    assert lab[0].left() == []


async def _is_gone(platform: ManualPlatform) -> bool:
    return await platform.delete_slice(REQUEST.slice_id, REQUEST.zone) is DeleteResult.GONE
