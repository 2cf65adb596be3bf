"""`iris host add | remove` of a cluster that does not run, against real `sshd` processes."""

import asyncio
import difflib
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.cli.main import run
from iris.client.connect.identity import cluster_uid
from iris.config import load_config
from iris.platforms.manual.platform import ManualPlatform
from iris.platforms.manual.settings import manual_settings
from iris.storage.object_store import Store
from tests.platforms.worlds import MANUAL_KIND, a_group, wanted
from tests.sshd import Machine, machines, user

CONFIG = """# ours
name: lab
platform: {{manual: {{}}}}
controller: {{local: {{}}, bundle_prefix: "{store}"}}
defaults:
  ssh:
    {{user: {user}, port: {port}, key_file: "{key}", known_hosts: "{known}", connect_timeout: 5s}}
scale_groups:
  desks:
    type: manual_vm
    hosts:
      - {first}  # at the window
      - {second}
    min_slices: 2
    resources: {{cpu: 1, memory: 1g}}
"""


@pytest.fixture
def lab(sshd: None, tmp_path: Path) -> Iterator[list[Machine]]:
    """Two machines of the cluster, and another one."""
    with machines(tmp_path / "lab", 3, first=141, same_port=True) as found:
        yield found


@pytest.fixture
def file(lab: list[Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "state"))
    store, key = tmp_path / "store", lab[0].key
    store.mkdir()
    there = {
        "store": store.as_uri(),
        "user": user(),
        "port": lab[0].port,
        "key": key,
        "known": key.parent / "known_hosts",
    }
    path = tmp_path / "lab.yaml"
    path.write_text(CONFIG.format(**there, first=lab[0].address, second=lab[1].address))
    path.chmod(0o640)
    return path


def lease(file: Path, machine: Machine) -> None:
    """Leaves a slice of the cluster on the machine, as a cluster does whose machine was down when
    it stopped.
    """
    config = load_config(file)
    settings = manual_settings(
        config, asyncio.run(cluster_uid(Store(config.controller.bundle_prefix, create=True), "lab"))
    )
    hosts = {"desks": tuple(each for each in settings.all_hosts if each.address == machine.address)}
    left = ManualPlatform(settings.model_copy(update={"hosts": hosts}))
    asyncio.run(left.create_slice(wanted("left", a_group("desks", **MANUAL_KIND), cluster="lab")))


def changes(before: str, after: str) -> list[str]:
    return [
        each for each in difflib.ndiff(before.splitlines(), after.splitlines()) if each[0] in "+-"
    ]


def test_a_machine_is_added_with_a_check_and_without_one(
    lab: list[Machine], file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is the user's: only what has to be is changed, its mode stays, and a dry run changes
    nothing.
    """
    before, new = file.read_text(), lab[2]
    assert run(["host", "add", new.address, "--config", str(file), "--dry-run"]) == 0
    assert f"+      - {new.address}" in capsys.readouterr().out
    assert file.read_text() == before

    new.stop()
    assert run(["host", "add", new.address, "--config", str(file)]) == 5
    assert f"{new.address} cannot be used: port {new.port} " in capsys.readouterr().err
    assert file.read_text() == before
    new.start()

    assert run(["host", "add", new.address, "--config", str(file)]) == 0
    assert (
        f"{new.address} is in scale group desks; the next start of the cluster uses {file}"
        in capsys.readouterr().out
    )
    added = ["-     min_slices: 2", f"+       - {new.address}", "+     min_slices: 3"]
    assert sorted(changes(before, file.read_text())) == sorted(added)
    assert file.stat().st_mode & 0o777 == 0o640
    assert new.left() == []

    assert run(["host", "add", "127.0.0.200", "--config", str(file), "--no-check"]) == 0
    assert load_config(file).scale_groups["desks"].hosts[-1] == "127.0.0.200"


def test_a_removed_machine_keeps_nothing_of_the_cluster(
    lab: list[Machine], file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if the cluster does not run: it may have left a slice there."""
    before, leaving = file.read_text(), lab[1]
    lease(file, leaving)
    assert leaving.left() != []

    assert run(["host", "remove", leaving.address, "--config", str(file)]) == 0

    assert (
        f"{leaving.address} is removed; nothing of cluster lab is left there"
        in capsys.readouterr().out
    )
    assert leaving.left() == []
    removed = [f"-       - {leaving.address}", "-     min_slices: 2", "+     min_slices: 1"]
    assert sorted(changes(before, file.read_text())) == sorted(removed)


def test_a_machine_that_is_down_can_be_removed_later_or_given_up(
    lab: list[Machine], file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until then the file says that no slice begins there. The way back is to add it again."""
    before, leaving = file.read_text(), lab[1]
    lease(file, leaving)
    leaving.stop()

    assert run(["host", "remove", leaving.address, "--config", str(file)]) == 4
    printed = capsys.readouterr().err
    assert f"{leaving.address}: port {leaving.port} " in printed
    again = f"iris host remove {leaving.address} --config {file}"
    assert f"to finish, run: {again}\n" in printed
    assert f"if they will not come back, run: {again} --give-up" in printed
    assert load_config(file).scale_groups["desks"].retiring_hosts == (leaving.address,)

    assert run(["host", "add", leaving.address, "--config", str(file)]) == 0
    assert file.read_text() == before

    assert run(["host", "remove", leaving.address, "--config", str(file), "--give-up"]) == 0
    assert "what is on them stays: ~/.iris-host" in capsys.readouterr().err
    assert leaving.address not in file.read_text()
    assert ".iris-host" in leaving.left()
