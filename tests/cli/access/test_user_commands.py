"""`iris user` and `iris cluster access`: an administrator makes a policy, users make their keys."""

import json
from pathlib import Path

import pytest

from iris.access.tokens import claims_of
from iris.cli.main import run


@pytest.fixture(autouse=True)
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a policy, which the environment names, of a user without a key."""
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("IRIS_ACCESS_POLICY", str(tmp_path / "access.json"))
    for name in ("IRIS_IDENTITY", "IRIS_USER", "IRIS_CLUSTER"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "access.json"


@pytest.fixture
def created(policy: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert run(["cluster", "access", "--create", str(policy), "--name", "lab"]) == 0
    capsys.readouterr()
    return policy


def a_key(capsys: pytest.CaptureFixture[str], *arguments: str, file: Path) -> str:
    """Returns the public key that `iris user key` prints."""
    assert run(["user", "key", *arguments, "--file", str(file)]) == 0
    return capsys.readouterr().out.strip()


def test_a_user_is_added_listed_and_revoked(
    created: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The whole life of a user of a cluster."""
    key = a_key(capsys, "ada", "--cluster", "lab.example:7233/lab", file=tmp_path / "ada.json")
    assert run(["user", "add", "ada", "--role", "user", "--key", key]) == 0
    assert run(["user", "list", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["name"], row["role"], row["by"]) == ("ada", "user", "key")

    assert run(["user", "add", "ada", "--role", "operator"]) == 0
    assert run(["cluster", "access", "--check", str(created), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["roles"] == {"operator": 1}

    assert run(["user", "revoke", "ada"]) == 0
    values = json.loads(created.read_text())
    assert (values["principals"], values["revoked"]) == ([], [row["id"]])


def test_a_key_is_made_once_and_used_for_further_clusters(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A second key would have to be added everywhere."""
    file = tmp_path / "identity.json"
    first = a_key(capsys, "ada", "--cluster", "one.example:7233/one", file=file)
    assert a_key(capsys, "--cluster", "two.example:7233/two", file=file) == first
    assert file.stat().st_mode & 0o777 == 0o600
    clusters = json.loads(file.read_text())["clusters"]
    assert [each["name"] for each in clusters] == ["one", "two"]

    assert a_key(capsys, "--new", file=file) != first
    assert json.loads(file.read_text())["clusters"] == clusters


def test_the_key_of_somebody_else_is_not_replaced_by_mistake(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The private key is nowhere else."""
    file = tmp_path / "identity.json"
    a_key(capsys, "ada", file=file)

    assert run(["user", "key", "bob", "--file", str(file)]) == 5
    assert a_key(capsys, file=file).startswith("ed25519:")
    assert json.loads(file.read_text())["name"] == "ada"


@pytest.mark.parametrize("cluster", ["lab.example:7233", "lab"])
def test_a_key_is_for_a_named_cluster_at_an_address(
    capsys: pytest.CaptureFixture[str], cluster: str
) -> None:
    """A token names its cluster, and is sent to its address only."""
    assert run(["user", "key", "ada", "--cluster", cluster]) == 2
    assert "write HOST:PORT/NAME" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a b", "job/ada", "host/", "../ada"])
def test_a_key_is_of_a_name_that_ids_can_have(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """The name is the user of all jobs."""
    assert run(["user", "key", name]) == 2
    assert capsys.readouterr().err.startswith("error: name: ")


def test_a_new_name_needs_a_key(created: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An entry without a key does nothing."""
    before = created.read_text()

    assert run(["user", "add", "bob", "--role", "user"]) == 2
    assert "is missing, and bob is not in the policy yet" in capsys.readouterr().err
    assert created.read_text() == before


def test_a_policy_with_an_error_is_neither_accepted_nor_changed(
    created: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The servers keep the last good one, and a change would lose what is unreadable."""
    broken = created.read_text().replace('"lab"', '"a lab"')
    created.write_text(broken)

    assert run(["cluster", "access", "--check", str(created)]) == 5
    assert "cluster: 'a lab'" in capsys.readouterr().err
    assert run(["user", "revoke", "ada"]) == 5
    assert created.read_text() == broken


def test_rules_of_another_version_are_found_and_replaced(
    created: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After an upgrade of Iris, the servers have to know its new signals and queries."""
    values = json.loads(created.read_text())
    created.write_text(json.dumps(values | {"rules": {}}))

    assert run(["cluster", "access", "--check", str(created)]) == 5
    assert f"iris cluster access --update {created}" in capsys.readouterr().err
    assert run(["cluster", "access", "--update", str(created)]) == 0
    assert run(["cluster", "access", "--check", str(created)]) == 0


def test_a_policy_is_not_overwritten(created: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It names everybody who may work."""
    assert run(["cluster", "access", "--create", str(created), "--name", "lab"]) == 5
    assert "exists already" in capsys.readouterr().err


def test_the_mode_of_the_file_stays(created: Path) -> None:
    """The servers may run as another user, who reads it by a group."""
    assert created.stat().st_mode & 0o777 == 0o644
    created.chmod(0o640)
    assert run(["cluster", "access", "--update", str(created)]) == 0

    assert created.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    "arguments",
    [[], ["--check", "a", "--update", "a"], ["--check", "a", "--name", "lab"], ["--create", "a"]],
)
def test_one_thing_at_a_time_is_done_with_a_policy(arguments: list[str]) -> None:
    """Options that mean nothing together are typing errors."""
    assert run(["cluster", "access", *arguments]) == 2


def test_a_token_is_printed_for_the_clusters_of_the_key_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Temporal's own command takes it as an API key."""
    assert run(["user", "key", "ada", "--cluster", "lab.example:7233/lab"]) == 0
    capsys.readouterr()
    assert run(["--cluster", "lab.example:7233/lab", "user", "token"]) == 0
    claims = claims_of(capsys.readouterr().out.strip())
    assert (claims["sub"], claims["aud"]) == ("ada", "lab")

    assert run(["--cluster", "other.example:7233/other", "user", "token"]) == 5
    assert "iris user key --cluster other.example:7233/NAME" in capsys.readouterr().err


def test_a_policy_that_no_option_and_no_variable_names_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no place where policies are."""
    monkeypatch.delenv("IRIS_ACCESS_POLICY")

    assert run(["user", "list"]) == 2
    assert "--policy FILE" in capsys.readouterr().err


def test_the_policy_of_a_bucket_has_the_people_whom_google_knows(
    created: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The rest has no access to the store, rather than all of it."""
    for name in ("ada", "bob"):
        key = a_key(capsys, name, "--cluster", "lab:7233/lab", file=tmp_path / f"{name}.json")
        assert run(["user", "add", name, "--role", "user", "--key", key]) == 0
    capsys.readouterr()
    asked = ["cluster", "access", "--bucket-policy", str(created), "--store", "gs://lab/iris"]

    assert run([*asked, "--member", "ada=user:ada@example.org"]) == 0
    bindings = json.loads(capsys.readouterr().out)["bindings"]
    assert {member for each in bindings for member in each["members"]} == {"user:ada@example.org"}
    assert run([*asked, "--member", "eve=user:eve@example.org"]) == 3
    assert "eve" in capsys.readouterr().err
