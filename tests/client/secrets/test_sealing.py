"""Secrets of a submitter: where their values come from, what a cluster's store gets of them, and
that a host opens them.
"""

import json
import os
import stat
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from iris.activities.host.environment.secret_values import HostSecrets, SealedValues
from iris.activities.host.runtimes.base import HostFault, JobFault
from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.key_files import write_key_file
from iris.client.connect.rpc import Connection
from iris.client.connect.secret_keys import (
    ensure_keys,
    new_keys,
    publish_key,
    read_secret_keys,
    secret_keys,
)
from iris.client.operate.key_rotation import rotate_keys
from iris.client.secrets.named import SecretsClient
from iris.client.secrets.sealing import check_secrets, sealing
from iris.model import names, store_paths
from iris.model.errors import InvalidValue, NameTaken, NotFound, Rejected, Unreachable
from iris.model.job.secrets import MAX_VALUE_BYTES
from iris.model.job.spec import JobSpec
from iris.storage.object_store import Store

VALUE = "hunter2-of-the-submitter"


class Lab(NamedTuple):
    """A cluster, without its processes: its store, and the file of its keys on a host."""

    record: ClusterRecord
    store: Store
    keys: Path

    async def start(self, spec: JobSpec) -> JobSpec:
        """Submits the job and returns it as the cluster gets it."""
        async with sealing(self.record, spec) as sealed:
            return sealed

    async def values(self, spec: JobSpec, job: str = "", **env: str) -> dict[str, str]:
        """The values that a host gives to the program of the job, or of another job with the same
        references.
        """
        sealed = SealedValues(
            self.record.name, self.store, env or {names.ENV_SECRET_KEYS: str(self.keys)}
        )
        found = await HostSecrets(sealed=sealed).values(spec.secrets, job or spec.id)
        return {name: value.get_secret_value() for name, value in found.items()}

    async def refusal(self, spec: JobSpec, job: str = "", **env: str) -> str:
        """Why a host does not give them."""
        with pytest.raises(JobFault) as caught:
            await self.values(spec, job, **env)
        assert VALUE not in str(caught.value)
        return str(caught.value)

    async def stored(self) -> bytes:
        """All that is in the store."""
        objects = [await self.store.get(each.path) for each in await self.store.stored()]
        return b"\n".join(each for each in objects if each is not None)

    @property
    def named(self) -> SecretsClient:
        connection = Connection(None, self.record)  # type: ignore[arg-type] # they need the store only
        return SecretsClient(connection)


@pytest.fixture
async def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("IRIS_USER", "ada")
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    store = Store((tmp_path / "store").as_uri(), create=True)
    (directory := tmp_path / "state/clusters/lab").mkdir(parents=True)
    keys = ensure_keys(directory)
    await publish_key(store.url, "lab", read_secret_keys(keys))
    return Lab(ClusterRecord(name="lab", address="127.0.0.1:1", store=store.url), store, keys)


def a_job(name: str = "train", user: str = "ada", **secrets: str) -> JobSpec:
    return JobSpec(user=user, name=name, command=("true",), secrets=secrets)


async def test_a_job_gets_variables_and_files_of_its_submitter(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster gets a reference and a sealed value; a final line end, which editors add, is not
    part of a password.
    """
    monkeypatch.setenv("TOKEN", VALUE)
    Path("key").write_text(f"{VALUE}-in-a-file\n")
    spec = await lab.start(
        a_job(TOKEN="own:TOKEN", COPY="env:TOKEN", KEY="file:key", HOSTS="gcp:wandb")
    )

    assert VALUE not in spec.model_dump_json()
    assert VALUE.encode() not in await lab.stored()
    assert spec.secrets["HOSTS"] == "gcp:wandb"
    opened = await lab.values(
        a_job(**{name: spec.secrets[name] for name in ("TOKEN", "COPY", "KEY")})
    )
    assert opened == {"TOKEN": VALUE, "COPY": VALUE, "KEY": f"{VALUE}-in-a-file"}


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (
            "own:NONE",
            (
                "the variable NONE, which is not set here, and you have no named secret NONE;"
                " export it, keep it with `iris"
            ),
        ),
        (
            "env:NONE",
            (
                "the variable NONE, which is not set here; export it, or name another source:"
                " A=file:PATH"
            ),
        ),
        ("env:EMPTY", "the variable EMPTY, which is empty here"),
        ("env:BIG", "it is larger than 64 KiB"),
        (
            "file:none",
            "the content of none, which cannot be read on this machine: No such file or directory",
        ),
        ("file:.", "it is not a regular file"),
        ("file:pipe", "it is not a regular file"),
        ("file:empty", "the value of empty: it is empty"),
        ("file:nul", "NUL byte"),
        (
            "secret:NONE",
            "ada has no named secret NONE on cluster lab; make it with `iris secret set NONE`",
        ),
    ],
)
async def test_a_secret_without_a_value_is_refused_where_it_is_submitted(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, source: str, problem: str
) -> None:
    """Before files are sent, also by a dry run: nothing on the cluster could mend it. The message
    names the variable.
    """
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("BIG", "x" * (MAX_VALUE_BYTES + 1))
    os.mkfifo("pipe")
    Path("empty").write_text("\n")
    Path("nul").write_bytes(b"a\0b")
    with pytest.raises((InvalidValue, NotFound), match="secret") as caught:
        await check_secrets(lab.record, a_job(A=source))

    assert problem in str(caught.value)
    assert "A" in str(caught.value).split(problem)[0]


async def test_a_cluster_without_a_key_refuses_secrets_of_submitters_only(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A control plane that starts without keys takes the public one back: its agents could not open
    anything.
    """
    monkeypatch.setenv("TOKEN", VALUE)
    await publish_key(lab.store.url, "lab", None)

    assert await check_secrets(lab.record, a_job(A="host-env:A")) == []
    for refused in (
        check_secrets(lab.record, a_job(TOKEN="own:TOKEN")),
        lab.start(a_job(TOKEN="own:TOKEN")),
    ):
        with pytest.raises(
            Rejected,
            match=(
                "cluster lab has no key for secrets of its users: start its control plane and its"
                " agents"
            ),
        ):
            await refused


async def test_a_bare_name_is_the_variable_that_is_set_here_else_the_named_secret(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The value that the user sees in the shell wins, with a warning; the other one has a form of
    its own.
    """
    await lab.named.set("TOKEN", "a named value")
    bare, named = a_job(TOKEN="own:TOKEN"), a_job(TOKEN="secret:TOKEN")
    assert await check_secrets(lab.record, bare) == []
    assert await lab.values(await lab.start(bare)) == {"TOKEN": "a named value"}
    monkeypatch.setenv("TOKEN", VALUE)

    (warning,) = await check_secrets(lab.record, bare)
    assert "TOKEN is set here and is also one of your named secrets" in warning
    assert await lab.values(await lab.start(bare)) == {"TOKEN": VALUE}
    assert await lab.values(await lab.start(named)) == {"TOKEN": "a named value"}


async def test_another_job_or_user_cannot_use_a_sealed_value(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by its reference, nor by a copy of the object below a name of one's own."""
    monkeypatch.setenv("TOKEN", VALUE)
    await lab.named.set("NAMED", VALUE)
    spec = await lab.start(a_job(TOKEN="own:TOKEN", NAMED="secret:NAMED"))
    token, named = spec.secrets["TOKEN"], spec.secrets["NAMED"]

    assert await lab.values(spec, "ada/train/child") == {"TOKEN": VALUE, "NAMED": VALUE}
    assert "it was given to ada/train" in await lab.refusal(spec, "ada/train-2")
    assert "it was given to ada/train" in await lab.refusal(spec, "bob/train")
    assert "a secret of the user ada" in await lab.refusal(a_job(NAMED=named), "bob/train")
    for source, copy in (
        (token, token.replace("ada/train", "bob/own")),
        (named, "sealed:user/bob/NAMED"),
    ):
        paths = [
            store_paths.sealed_object("lab", each.partition(":")[2]) for each in (source, copy)
        ]
        await lab.store.copy(*paths)
        variable = "NAMED" if "user" in copy else "TOKEN"
        refusal = await lab.refusal(a_job(**{variable: copy}), "bob/own")
        assert "sealed for another cluster, object or name" in refusal
    renamed = await lab.refusal(a_job(OTHER=token))
    assert "the stored object with the sealed values has no value for OTHER" in renamed


async def test_what_is_gone_or_changed_in_the_store_is_said(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is read by the user of the job; a store that does not answer is not the job's
    fault.
    """
    monkeypatch.setenv("TOKEN", VALUE)
    spec = await lab.start(a_job(TOKEN="own:TOKEN"))
    path = store_paths.sealed_object("lab", spec.secrets["TOKEN"].partition(":")[2])
    stored = await lab.store.get(path)
    assert stored is not None
    content = json.loads(stored)

    await lab.store.put(path, b"{")
    assert "with its sealed value is damaged" in await lab.refusal(spec)
    content["values"]["TOKEN"]["data"] = "AAAA"
    await lab.store.put(path, json.dumps(content).encode())
    assert "secret TOKEN (its submitter) cannot be used" in await lab.refusal(spec)
    await lab.store.delete([path])
    assert "not in the store any more: it was deleted, or its job has ended" in await lab.refusal(
        spec
    )
    away = HostSecrets(
        sealed=SealedValues(
            "lab", Store(f"{lab.store.url}-away"), {names.ENV_SECRET_KEYS: str(lab.keys)}
        )
    )
    with pytest.raises(HostFault, match=r"secret TOKEN \(its submitter\) could not be read"):
        await away.values(spec.secrets, spec.id)


async def test_a_host_without_the_keys_says_what_it_lacks(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No file, one that others can read, and keys of another cluster, or of this one before it was
    set up again.
    """
    monkeypatch.setenv("TOKEN", VALUE)
    spec = await lab.start(a_job(TOKEN="own:TOKEN"))
    write_key_file(other := tmp_path / "other", new_keys())

    assert (
        "no keys for the secrets of users; start it with IRIS_SECRET_KEYS=FILE"
        in await lab.refusal(spec, HOME="/")
    )
    assert "cannot read its keys" in await lab.refusal(spec, IRIS_SECRET_KEYS="/none")
    lacking = await lab.refusal(spec, IRIS_SECRET_KEYS=str(other))
    assert "its value was sealed with the key" in lacking
    assert (
        f"which is not in {other} on this host; set it again, or bring the keys of this host up to"
        " date" in lacking
    )
    lab.keys.chmod(0o644)
    assert "open to other users of the host" in await lab.refusal(spec)
    monkeypatch.setenv("IRIS_SECRET_KEYS", str(lab.keys))
    with pytest.raises(InvalidValue, match=r"IRIS_SECRET_KEYS: .* is open to other users"):
        secret_keys()


async def test_values_of_a_job_that_was_not_started_are_deleted(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is taken starts nothing. After a lost connection the job may run, and needs
    them.
    """
    monkeypatch.setenv("TOKEN", VALUE)

    async def failing(error: Exception) -> None:
        async with sealing(lab.record, a_job(TOKEN="own:TOKEN")):
            raise error

    with pytest.raises(NameTaken):
        await failing(NameTaken("there is one"))
    assert await lab.store.stored("sealed") == []
    with pytest.raises(Unreachable):
        await failing(Unreachable("no answer"))
    assert len(await lab.store.stored("sealed")) == 1


async def test_a_list_of_named_secrets_has_names_and_no_values(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can read a value back. Each user has a list of their own."""
    before = datetime.now().astimezone()
    await lab.named.set("TOKEN", VALUE)
    await lab.named.set("TOKEN", f"{VALUE}-2\n")
    await lab.named.set("KEY", VALUE)
    listed = await lab.named.list()

    assert [(each.name, each.user, each.by) for each in listed] == [
        ("KEY", "ada", "ada"),
        ("TOKEN", "ada", "ada"),
    ]
    assert all(before <= each.at for each in listed)
    assert VALUE not in repr(listed)
    assert VALUE.encode() not in await lab.stored()
    assert await lab.values(await lab.start(a_job(TOKEN="secret:TOKEN"))) == {"TOKEN": f"{VALUE}-2"}
    await lab.named.remove("KEY")
    assert [each.name for each in await lab.named.list()] == ["TOKEN"]
    with pytest.raises(NotFound, match="ada has no named secret KEY"):
        await lab.named.remove("KEY")
    monkeypatch.setenv("IRIS_USER", "bob")
    assert await lab.named.list() == []
    for wrong in ("a b", "../../job/ada", ""):
        with pytest.raises(InvalidValue, match="not a valid name of a secret"):
            await lab.named.set(wrong, VALUE)


async def test_live_jobs_keep_their_secrets_through_rotations(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the file of keys of each host, also of one that got it before the last rotation; and the
    old keys are gone at last.
    """
    monkeypatch.setenv("TOKEN", VALUE)
    await lab.named.set("NAMED", VALUE)
    spec = await lab.start(a_job(TOKEN="own:TOKEN", NAMED="secret:NAMED"))
    write_key_file(slow := tmp_path / "slow", lab.keys.read_text())
    first = set(read_secret_keys(lab.keys).private.keys)

    once = await rotate_keys(lab.record)
    assert (once.file, once.sealed_again, once.removed) == (lab.keys, 2, 0)
    assert stat.S_IMODE(lab.keys.stat().st_mode) == 0o600
    for keys in (lab.keys, slow):
        assert await lab.values(spec, IRIS_SECRET_KEYS=str(keys)) == {
            "TOKEN": VALUE,
            "NAMED": VALUE,
        }
        assert await lab.values(
            await lab.start(a_job(TOKEN="own:TOKEN")), IRIS_SECRET_KEYS=str(keys)
        ) == {"TOKEN": VALUE}
    for _ in range(3):
        await rotate_keys(lab.record)
    assert await lab.values(spec) == {"TOKEN": VALUE, "NAMED": VALUE}
    assert not first & set(read_secret_keys(lab.keys).private.keys)


async def test_the_keys_of_another_cluster_are_not_rotated(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file that is named by mistake would leave the cluster with a public key that no host can
    open.
    """
    write_key_file(other := tmp_path / "other", new_keys())
    monkeypatch.setenv("IRIS_SECRET_KEYS", str(other))
    with pytest.raises(
        InvalidValue,
        match="does not contain the key with which the secrets of cluster lab are sealed",
    ):
        await rotate_keys(lab.record)
    monkeypatch.delenv("IRIS_SECRET_KEYS")
    lab.keys.unlink()
    with pytest.raises(
        Rejected,
        match="the keys of cluster lab are not on this machine; run this command on the machine of",
    ):
        await rotate_keys(lab.record)
