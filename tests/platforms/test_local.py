"""The local platform: its directory, whose contents it does not trust, and the command lines of its
agents.
"""

from itertools import pairwise
from pathlib import Path

import pytest

from iris.model.host.constraints import parse_attribute
from iris.model.host.resources import parse_device
from iris.model.slice.provisioning import DeleteResult, MachineState
from iris.model.slice.scale_groups import SliceType
from iris.platforms.base import BadConfig, Unavailable
from iris.platforms.local import LocalPlatform, agent_command
from tests.builders import some
from tests.platforms.worlds import a_group, wanted


@pytest.fixture
def platform(tmp_path: Path) -> LocalPlatform:
    return LocalPlatform(tmp_path / "slices")


@pytest.mark.parametrize("text", ["", "{", '{"slice_id": "odd"}', None])
async def test_an_unreadable_slice_is_failed_and_can_be_deleted(
    platform: LocalPlatform, tmp_path: Path, text: str | None
) -> None:
    """If it were skipped, it would never be deleted; if it were an error, no other slice could be
    listed.
    """
    await platform.create_slice(wanted("good"))
    odd = tmp_path / "slices" / "odd"
    odd.mkdir()
    if text is not None:
        (odd / "request.json").write_text(text)

    states = {each.slice_id: each.state for each in (await platform.list_slices()).slices}
    assert states == {"good": MachineState.CREATING, "odd": MachineState.FAILED}
    seen = await platform.describe_slice("odd", "west4-a")
    assert seen is not None
    assert "request.json" in seen.reason
    with pytest.raises(BadConfig, match="odd already exists"):
        await platform.create_slice(wanted("odd"))
    assert await platform.delete_slice("odd", "west4-a") is DeleteResult.GOING


async def test_an_invalid_report_of_the_supervisor_fails_the_slice(
    platform: LocalPlatform, tmp_path: Path
) -> None:
    """The state of its processes is unknown."""
    await platform.create_slice(wanted("one"))
    (tmp_path / "slices" / "one" / "machines.json").write_text("half a")

    seen = await platform.describe_slice("one", "west4-a")
    assert seen is not None
    assert (seen.state, "machines.json" in seen.reason) == (MachineState.FAILED, True)


async def test_a_partly_written_slice_does_not_exist(
    platform: LocalPlatform, tmp_path: Path
) -> None:
    """A control plane that died during the write requested nothing, and stray files are not
    slices.
    """
    await platform.create_slice(wanted("one"))
    (tmp_path / "slices" / ".new-abc" / "whole").mkdir(parents=True)
    (tmp_path / "slices" / "notes").write_text("remember")

    assert [each.slice_id for each in (await platform.list_slices()).slices] == ["one"]
    assert await platform.describe_slice("notes", "west4-a") is None


async def test_a_failed_write_can_be_repeated(tmp_path: Path) -> None:
    """A full disk is not a refusal."""
    (tmp_path / "slices").write_text("no directory")
    with pytest.raises(Unavailable, match="cannot write"):
        await LocalPlatform(tmp_path / "slices").create_slice(wanted())


@pytest.mark.parametrize("slice_id", ["", ".", "..", "../up", "a/b", ".hidden"])
async def test_an_id_that_leaves_the_directory_is_refused(
    platform: LocalPlatform, tmp_path: Path, slice_id: str
) -> None:
    """Ids come over the network, and a delete writes a file at a path that contains the id."""
    (tmp_path / "slices" / "a" / "b").mkdir(parents=True)
    (tmp_path / "slices" / ".hidden").mkdir()
    (tmp_path / "up").mkdir()
    with pytest.raises(BadConfig, match="is not a valid name"):
        await platform.create_slice(wanted(slice_id))

    assert await platform.describe_slice(slice_id, "west4-a") is None
    assert await platform.delete_slice(slice_id, "west4-a") is DeleteResult.GONE
    assert list(tmp_path.rglob("delete")) == []


async def test_an_id_that_makes_host_ids_too_long_is_refused(platform: LocalPlatform) -> None:
    """Their agents would be refused again and again."""
    with pytest.raises(BadConfig, match=r"host: 'x+-w-1' is not a valid name"):
        await platform.create_slice(wanted("x" * 58))

    await platform.create_slice(wanted("x" * 56))


def option(command: list[str], name: str) -> list[str]:
    """Every value that the option has in a command line."""
    return [value for before, value in pairwise(command) if before == name]


def test_an_agents_command_line_has_all_facts_of_its_host(tmp_path: Path) -> None:
    """No declared resource is lost, and each attribute keeps its type."""
    odd = {
        "flag": True,
        "share": 0.5,
        "big": 1e22,
        "label": "a=b c",
        "none": "",
        "text": "true",
        "digits": "4",
        "quoted": '"',
    }
    request = wanted(
        "dev-v5e-16-abc", a_group(hosts=4, topology="4x4", preemptible=True, attributes=odd)
    )
    host = request.group.slice_hosts(request.slice_id, request.zone, address="10.0.0.7")[2]
    home = tmp_path / request.slice_id
    home.mkdir()
    (home / "slice.key").touch()
    command = agent_command(request, host, home)

    assert command[command.index("agent") :][:2] == ["agent", "--host-id"]
    assert "--join" not in command
    assert option(command, "--cluster") == ["dev"]
    assert option(command, "--host-id") == ["dev-v5e-16-abc-w-2"]
    assert (option(command, "--slice"), option(command, "--key-file")) == (
        [request.slice_id],
        [str(home / "slice.key")],
    )
    assert (option(command, "--address"), option(command, "--dir")) == (
        ["10.0.0.7"],
        [str(home / "hosts" / host.id)],
    )
    assert [parse_device(text) for text in option(command, "--device")] == [host.resources.device]
    assert (option(command, "--cpu"), option(command, "--memory")) == (
        ["8000m"],
        [str(host.resources.memory_bytes)],
    )
    assert option(command, "--disk") == [str(host.resources.disk_bytes)]
    pairs = [text.partition("=") for text in option(command, "--attribute")]
    told = {key: parse_attribute(value) for key, _, value in pairs}
    assert (told, [type(value) for value in told.values()]) == (
        host.attributes,
        [type(v) for v in host.attributes.values()],
    )
    assert (told["tpu-worker-id"], told["tpu-topology"], told["preemptible"]) == (2, "4x4", True)
    assert "--accept-cpu-jobs" not in command


def test_an_agent_without_accelerators_gets_no_device_option() -> None:
    """And it gets --accept-cpu-jobs only if its group has it."""
    plain = a_group(
        "cpu", hosts=1, type=SliceType.LOCAL_VM, resources=some(cpu=4), accelerator_variant=""
    )
    for group, more in (
        (plain, []),
        (plain.model_copy(update={"accept_cpu_jobs": True}), ["--accept-cpu-jobs"]),
    ):
        request = wanted("dev-cpu-abc", group)
        (host,) = group.slice_hosts(request.slice_id, request.zone)
        command = agent_command(request, host, Path("/somewhere"))

        assert option(command, "--host-id") == ["dev-cpu-abc"]
        assert (
            "--device" in command,
            [part for part in command if part == "--accept-cpu-jobs"],
        ) == (False, more)
