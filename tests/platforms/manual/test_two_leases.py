"""A slice over SSH whose lease went to two machines keeps one of them, against real `sshd`
processes.
"""

import shutil
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from iris.model.slice.provisioning import SliceObservation
from iris.platforms.manual.platform import ManualPlatform
from iris.platforms.manual.settings import ManualSettings
from tests.platforms.manual.test_platform import REQUEST, _is_gone
from tests.platforms.worlds import ManualWorld, until
from tests.sshd import Machine, machines

#: In the place of base64, with which a machine begins to write its lease: it waits for a file.
STALLED = """#!/bin/sh
until [ -e $HOME/goes-on ]; do sleep 0.05; done
exec /usr/bin/base64 "$@"
"""


@pytest.fixture
def lab(sshd: None, tmp_path: Path) -> Iterator[list[Machine]]:
    """Two machines. The first one stalls when it is leased, until the file exists."""
    with machines(tmp_path, 2, first=36) as found:
        stalled = found[0].home / "bin" / "base64"
        stalled.parent.mkdir()
        stalled.write_text(STALLED)
        stalled.chmod(0o755)
        (found[0].home / ".bashrc").write_text("export PATH=$HOME/bin:$PATH\n")
        yield found


class Leased:
    """A slice that went to the second machine, and the machines on which an agent was to be started
    since then.
    """

    def __init__(self, settings: ManualSettings) -> None:
        self._settings = settings
        self.attended: set[str] = set()
        self.platform = self.another()

    def another(self) -> ManualPlatform:
        """As a control plane has it that has just started."""
        return ManualPlatform(
            self._settings, attend=lambda host, request: self.attended.add(host.address)
        )

    async def create(self, monkeypatch: pytest.MonkeyPatch) -> SliceObservation:
        """Leases the second machine, because the first one does not answer in time."""
        with monkeypatch.context() as impatient:
            impatient.setattr("iris.platforms.manual.platform.COMMAND_LIMIT", timedelta(seconds=1))
            return await self.platform.create_slice(REQUEST)


async def goes_on(late: Machine) -> None:
    """The first machine has its lease now, too."""
    (late.home / "goes-on").touch()
    await until(lambda: list(late.home.glob(".iris-*/*/lease.json")))


@pytest.fixture
def leased(lab: list[Machine], tmp_path: Path) -> Leased:
    return Leased(ManualWorld(lab, tmp_path / "known_hosts").settings())


@pytest.mark.long
@pytest.mark.parametrize("restarted", [False, True], ids=["same control plane", "restarted"])
async def test_a_machine_whose_lease_was_late_is_given_back_and_never_gets_an_agent(
    lab: list[Machine], leased: Leased, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    """Another one has the slice by then. Two agents with one host id would end each other's work,
    and the machine stay lost.
    """
    late, other = lab
    created = await leased.create(monkeypatch)
    (home,) = other.home.glob(".iris-*/*")
    if restarted:
        (home / "agent.pid").touch()  # its agent was started
        leased.platform = leased.another()
    await goes_on(late)
    ours = leased.platform

    (seen,) = (await ours.list_slices()).slices
    assert seen.public_key == created.public_key
    assert list(late.home.glob(".iris-*")) == []
    assert await ours.describe_slice(REQUEST.slice_id, REQUEST.zone) == seen
    assert leased.attended == {other.address}
    await until(partial(_is_gone, ours))
    assert list(other.home.glob(".iris-*")) == []


async def test_a_machine_whose_lease_was_late_does_not_stand_for_the_one_that_has_the_slice(
    lab: list[Machine], leased: Leased, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one does not answer for a moment. It has not lost its slice by that."""
    late, other = lab
    await leased.create(monkeypatch)
    await goes_on(late)
    other.stop()

    listing = await leased.platform.list_slices()

    assert listing.slices == ()
    assert other.address in listing.unreachable[REQUEST.zone]
    assert leased.attended == {other.address}
    assert list(late.home.glob(".iris-*")) == []


async def test_a_machine_that_is_listed_twice_has_one_lease_and_keeps_it(
    lab: list[Machine], tmp_path: Path
) -> None:
    """With two keys in two scale groups, for example. Each entry shows the same lease."""
    machine = lab[1].access
    again = machine.model_copy(
        update={"key_file": Path(shutil.copy(lab[1].key, tmp_path / "copied_key"))}
    )
    settings = ManualWorld(lab, tmp_path / "known_hosts").settings()
    settings = settings.model_copy(update={"hosts": {REQUEST.group.name: (machine, again)}})
    ours = ManualPlatform(settings)

    created = await ours.create_slice(REQUEST)

    assert (await ours.list_slices()).slices == (created,)
    await until(partial(_is_gone, ours))
    assert lab[1].left() == []
