"""What a host makes of references to secrets, and that its errors name the secret and never a
value.
"""

import os
from pathlib import Path

import pytest

from iris.activities.host.environment.secret_values import HostSecrets, SealedValues
from iris.activities.host.runtimes.base import HostFault, JobFault
from iris.model import names, store_paths
from iris.model.host.faults import OF_THE_SETUP
from iris.model.job.secrets import ALL_OF_THE_USERS, MAX_VALUE_BYTES
from iris.platforms.base import BadConfig, Unavailable
from iris.storage.object_store import Store

VALUE = "hunter2-of-the-host"


class Vault:
    """A `SecretManager` with one secret."""

    def project(self) -> str:
        return "home"

    def access(self, resource: str) -> bytes:
        if resource.startswith("projects/away/"):
            raise Unavailable("Secret Manager does not answer")
        if resource != "projects/home/secrets/wandb/versions/latest":
            raise BadConfig(f"Secret Manager answers with 404: {resource} not found")
        return f"{VALUE}\n".encode()


async def value(source: str, *allowed: str, own: tuple[Path, ...] = (), **env: str) -> str:
    """The value of the secret A."""
    host = HostSecrets(allowed or ALL_OF_THE_USERS, Vault, env, own)
    return (await host.values({"A": source}, "ada/train"))["A"].get_secret_value()


async def refusal(source: str, *allowed: str, own: tuple[Path, ...] = (), **env: str) -> str:
    """Why the secret A cannot be used."""
    with pytest.raises(JobFault) as caught:
        await value(source, *allowed, own=own, **env)
    assert VALUE not in str(caught.value)
    assert str(caught.value).startswith("secret A (")
    return str(caught.value)


async def test_a_value_comes_from_the_environment_a_file_or_google(tmp_path: Path) -> None:
    """The three sources. The line end that an editor adds is not part of a password."""
    file = tmp_path / "key"
    file.write_text(f"{VALUE}\n")

    assert await value("host-env:KEY", KEY=VALUE) == VALUE
    assert await value(f"host-file:{file}") == VALUE
    assert await value("gcp:wandb") == VALUE
    assert await value("gcp:projects/home/secrets/wandb") == VALUE


async def test_what_is_missing_or_no_value_is_refused_with_its_name_and_source(
    tmp_path: Path,
) -> None:
    """The user has to know which of the job's secrets it is. Another host would not have it
    either.
    """
    (tmp_path / "big").write_bytes(b"x" * (MAX_VALUE_BYTES + 1))
    os.mkfifo(tmp_path / "pipe")

    assert (
        await refusal("host-env:KEY")
        == "secret A (host-env:KEY) cannot be used: the agent of this host has no such variable"
    )
    assert "is empty" in await refusal("host-env:KEY", KEY="")
    assert "No such file" in await refusal(f"host-file:{tmp_path}/none")
    assert "larger than 64 KiB" in await refusal(f"host-file:{tmp_path}/big")
    assert "not a regular file" in await refusal(f"host-file:{tmp_path}")
    assert "not a regular file" in await refusal(f"host-file:{tmp_path}/pipe")
    assert "404" in await refusal("gcp:other")


async def test_a_google_that_does_not_answer_is_no_failure_of_the_job() -> None:
    """The attempt is tried again, on the account of the network."""
    with pytest.raises(HostFault, match=r"secret A .* does not answer") as caught:
        await value("gcp:projects/away/secrets/wandb")

    assert caught.value.fault == "network"


async def test_a_store_that_is_away_counts_as_a_fault_of_the_cluster(tmp_path: Path) -> None:
    """Decision 141: the object store belongs to the cluster, so the attempt costs the job neither a
    retry nor one of its set-ups.
    """
    (tmp_path / "keys").write_text("")
    (tmp_path / "keys").chmod(0o600)
    away = Store((tmp_path / "away").as_uri())
    sealed = SealedValues("lab", away, {names.ENV_SECRET_KEYS: str(tmp_path / "keys")})
    path = store_paths.sealed_for_job("ada/train", "0123456789abcdef")

    with pytest.raises(HostFault, match=r"secret A .* could not be read") as caught:
        await HostSecrets(sealed=sealed).values({"A": f"sealed:{path}"}, "ada/train")

    assert caught.value.fault not in OF_THE_SETUP
    assert caught.value.fault == "store"


async def test_nothing_is_given_that_the_configuration_does_not_list() -> None:
    """The default of a fleet is an empty list: its agents have rights that its users do not
    have.
    """
    host = HostSecrets((), Vault, {"KEY": VALUE})
    for source in ("host-env:KEY", "host-file:/etc/hostname", "gcp:wandb"):
        with pytest.raises(JobFault, match=r"add it to bootstrap\.secrets"):
            await host.values({"A": source}, "ada/train")


async def test_a_link_does_not_lead_out_of_the_listed_directory(tmp_path: Path) -> None:
    """A job may be able to write there, and an agent that is root can read everything."""
    given, other = tmp_path / "given", tmp_path / "other"
    for directory in (given, other):
        directory.mkdir()
        (directory / "key").write_text(VALUE)
    (given / "link").symlink_to(other / "key")
    (given / "inside").symlink_to("key")
    (given / "folder").symlink_to(other)

    assert await value(f"host-file:{given}/inside", f"host-file:{given}/*") == VALUE
    assert "does not allow it" in await refusal(f"host-file:{given}/link", f"host-file:{given}/*")
    assert "does not allow it" in await refusal(
        f"host-file:{given}/folder/key", f"host-file:{given}/*"
    )


async def test_an_agent_gives_nothing_of_its_own(tmp_path: Path) -> None:
    """Its credentials reach the whole cluster. The tokens of other attempts lie in its
    directory.
    """
    (tmp_path / "state").mkdir()
    token, key = tmp_path / "state" / "state.json", tmp_path / "client.key"
    token.write_text(VALUE)
    key.write_text(VALUE)

    assert "credential of the agent" in await refusal(
        "host-env:TEMPORAL_API_KEY", TEMPORAL_API_KEY=VALUE
    )
    assert "file of the agent" in await refusal(f"host-file:{token}", own=(tmp_path / "state",))
    assert "credential of the agent" in await refusal(
        f"host-file:{key}", TEMPORAL_TLS_CLIENT_KEY_PATH=str(key)
    )
    assert "credential of the agent" in await refusal(
        f"host-file:{key}", IRIS_PAYLOAD_KEYS=str(key)
    )
    assert "file of the operating system" in await refusal("host-file:/proc/self/environ")


async def test_values_do_not_show_in_the_texts_of_objects() -> None:
    """A debugger, a log and a traceback print objects."""
    host = HostSecrets(ALL_OF_THE_USERS, env={"KEY": VALUE})
    values = await host.values({"A": "host-env:KEY"}, "ada/train")

    assert VALUE not in f"{host} {host!r} {values} {values!r}"
    assert values["A"].get_secret_value() == VALUE


async def test_an_agent_without_googles_libraries_says_so() -> None:
    """They are an extra."""
    with pytest.raises(JobFault, match=r"without iris-temporal\[secrets\]"):
        await HostSecrets(ALL_OF_THE_USERS).values({"A": "gcp:wandb"}, "ada/train")
