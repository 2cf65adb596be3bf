"""Where a process finds the key for its messages, and how it finds out that it has a wrong one."""

import base64
import os
from pathlib import Path

import pytest

from iris.client.access.message_key import check_mark, ensure_key, keep_key, message_key, write_copy
from iris.client.connect.clusters import ClusterRecord, ProcessRef, write_record
from iris.model import names
from iris.model.errors import InvalidValue, Rejected
from iris.model.message_keys import MessageKey

ADDRESS = "127.0.0.1:7233"
KEY = MessageKey(b"k" * 32)
STORE = "file:///store"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty state directory, in a process without keys."""
    for name in (names.ENV_MESSAGE_KEY, names.ENV_JOB_KEY, names.ENV_JOB_ID):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(names.ENV_STATE_DIR, str(tmp_path))
    return tmp_path


def own_cluster(state: Path, *, runs: bool = True) -> MessageKey:
    """The key of a cluster of this machine."""
    supervisor = ProcessRef.of(os.getpid()) if runs else ProcessRef(pid=1, created=1.0)
    write_record(ClusterRecord(name="lab", address=ADDRESS, store=STORE, supervisor=supervisor))
    ensure_key(state / "clusters" / "lab")
    found = message_key("lab")
    assert found is not None
    return found


def copied(path: Path, text: str = base64.b64encode(KEY.secret).decode()) -> str:
    path.touch(0o600)
    path.write_text(text)
    return str(path)


def test_a_cluster_keeps_the_key_of_its_first_start_for_its_user_alone(state: Path) -> None:
    """Its workflows can be read with no other key."""
    own = own_cluster(state)

    path = ensure_key(state / "clusters" / "lab")
    assert path.stat().st_mode & 0o777 == 0o600
    assert message_key("lab") == own


def test_the_key_of_a_cluster_of_this_machine_comes_before_the_one_that_the_variable_names(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell may name the key of another cluster, which is for all clusters that are not known
    here.
    """
    monkeypatch.setenv(names.ENV_MESSAGE_KEY, copied(state / "copy"))
    own = own_cluster(state)

    assert own != KEY
    assert message_key(address=ADDRESS) == own
    assert message_key(address="127.0.0.1:1") == KEY


def test_a_cluster_that_does_not_run_has_lost_its_address(state: Path) -> None:
    """Another service may listen there by now."""
    own_cluster(state, runs=False)

    assert message_key(address=ADDRESS) is None


def test_an_agent_keeps_the_key_while_its_cluster_does_not_run(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It connects again before the cluster has a record of its new processes."""
    monkeypatch.setenv(names.ENV_MESSAGE_KEY, "")
    own = own_cluster(state)
    keep_key("", ADDRESS)
    own_cluster(state, runs=False)

    assert message_key(address=ADDRESS) == own


def test_the_program_of_a_job_has_the_key_of_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot read the file."""
    own = KEY.of_job("ada/train")
    monkeypatch.setenv(names.ENV_JOB_KEY, base64.b64encode(own.secret).decode())
    monkeypatch.setenv(names.ENV_JOB_ID, "ada/train")

    assert message_key(address=ADDRESS) == own


def test_the_key_of_a_cluster_elsewhere_comes_and_goes_with_it(state: Path) -> None:
    """The machine of its control plane is asked at each start."""
    write_record(ClusterRecord(name="lab", address="", store=STORE, remote=True))

    write_copy("lab", copied(state / "copy") and (state / "copy").read_text())
    assert message_key("lab") == KEY
    write_copy("lab", "")
    assert message_key("lab") is None


@pytest.mark.parametrize("text", ["", "short", "bm90IDMyIGJ5dGVz"])
def test_a_file_without_a_key_is_refused(
    state: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """A message with half a key would be ignored without a word."""
    monkeypatch.setenv(names.ENV_MESSAGE_KEY, copied(state / "copy", text))
    with pytest.raises(InvalidValue):
        message_key()


def test_a_file_that_others_can_read_is_refused(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads it may act as any user."""
    monkeypatch.setenv(names.ENV_MESSAGE_KEY, copied(state / "copy"))
    (state / "copy").chmod(0o644)
    with pytest.raises(InvalidValue):
        message_key()


@pytest.mark.parametrize(
    ("key", "mark", "is_refused"),
    [
        (None, "", False),
        (None, KEY.mark("lab", STORE), True),
        (KEY, KEY.mark("lab", STORE), False),
        (KEY, KEY.mark("lab", "file:///planted"), True),
        (KEY, MessageKey(b"o" * 32).mark("lab", STORE), True),
        (KEY, "", True),
        (KEY.of_job("ada/train"), KEY.mark("lab", STORE), False),
    ],
    ids=["no key", "lacks it", "has it", "another store", "another key", "planted", "job"],
)
def test_a_client_compares_the_mark_of_a_cluster_with_its_key(
    key: MessageKey | None, mark: str, is_refused: bool
) -> None:
    """Before it sends anything, and before it trusts the store. The key of a job cannot check it."""
    if not is_refused:
        check_mark(key, "lab", STORE, mark)
        return
    with pytest.raises(Rejected, match=names.ENV_MESSAGE_KEY):
        check_mark(key, "lab", STORE, mark)
