"""Proofs of messages: what they bind, and what the key of a job is for."""

from datetime import UTC, datetime

import pytest

from iris.model.message_keys import KEY_BYTES, Kind, Message, MessageKey, Proof, may_send

KEY = MessageKey(bytes(range(KEY_BYTES)))
JOB = "ada/train"
NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
MESSAGE = Message(Kind.SIGNAL, "hold", "c/job/ada/train", (b"one", b"two"))


def proof(key: MessageKey = KEY, message: Message = MESSAGE) -> Proof:
    return key.prove(message, NOW, "a/1")


@pytest.mark.parametrize(
    "other",
    [
        {"kind": Kind.UPDATE},
        {"name": "release"},
        {"receiver": "c/job/ada/other"},
        {"content": (b"onet", b"wo")},
        {"content": (b"one",)},
        {"content": (b"two", b"one")},
        {"content": (b"one", b"two", b"")},
    ],
    ids=str,
)
def test_a_proof_is_for_one_message(other: dict[str, object]) -> None:
    """Parts that give the same text when they are joined are another message."""
    assert not KEY.problem(MESSAGE, proof())
    assert KEY.problem(MESSAGE._replace(**other), proof())


def test_a_proof_is_made_with_the_key_and_binds_its_time_and_its_nonce() -> None:
    """A recorded proof cannot be made younger, or look as if it had not been seen."""
    assert KEY.problem(MESSAGE, None)
    assert KEY.problem(MESSAGE, proof(MessageKey(bytes(KEY_BYTES))))
    for changed in ({"at": NOW.replace(year=2027)}, {"nonce": "a/2"}, {"job": JOB}):
        assert KEY.problem(MESSAGE, proof()._replace(**changed))


def test_each_job_has_a_key_that_is_not_that_of_the_cluster() -> None:
    """From it, the key of another job cannot be derived."""
    keys = {KEY.secret, KEY.of_job(JOB).secret, KEY.of_job("ada/train2").secret}

    assert len(keys) == 3
    assert {len(key) for key in keys} == {KEY_BYTES}
    assert KEY.of_job(JOB) == KEY.of_job(JOB)


def test_a_key_does_not_show_in_texts() -> None:
    """Logs and tracebacks show values."""
    assert "secret" not in repr(KEY)


def test_a_mark_shows_the_key_and_the_store() -> None:
    """Who has no key cannot lead clients to another store."""
    mark = KEY.mark("lab", "file:///store")

    assert mark == KEY.mark("lab", "file:///store")
    others = {
        KEY.mark("lab", "file:///other"),
        KEY.mark("other", "file:///store"),
        MessageKey(bytes(KEY_BYTES)).mark("lab", "file:///store"),
    }
    assert mark not in others


@pytest.mark.parametrize("job", ["", JOB])
def test_a_proof_stays_the_same_on_its_way(job: str) -> None:
    """Its time has milliseconds, whatever the clock has."""
    key = KEY.of_job(job) if job else KEY
    sent = proof(key)
    received = Proof.decoded(sent.encoded())

    assert received is not None
    assert received.encoded() == sent.encoded()
    assert not KEY.problem(MESSAGE, received)
    assert (received.run, received.job) == ("a", job)


@pytest.mark.parametrize(
    "text",
    [b"", b"\xff", b"1 2 3", b"x n - 00", b"1 n - zz", b"9e9 n - 00", b"9" * 40 + b" n - 00"],
)
def test_a_malformed_proof_is_none(text: bytes) -> None:
    """Anybody may send anything."""
    assert Proof.decoded(text) is None


@pytest.mark.parametrize(
    ("kind", "receiver", "may"),
    [
        (Kind.START, "c/job/ada/train/child", True),
        (Kind.START, "c/job/ada/train/child/grandchild", True),
        (Kind.START, "c/job/ada/train", False),
        (Kind.START, "c/job/ada/train2", False),
        (Kind.START, "c/job/ada/other", False),
        (Kind.START, "c/schedule/ada/train/child", False),
        (Kind.START, "c/task/ada/train:0", False),
        (Kind.START, "c/scheduler", False),
        (Kind.SIGNAL, "c/job/ada/train", True),
        (Kind.SIGNAL, "c/job/ada/train/child", True),
        (Kind.SIGNAL, "c/task/ada/train:3", True),
        (Kind.SIGNAL, "c/job/ada/train2", False),
        (Kind.SIGNAL, "c/task/ada/train2:0", False),
        (Kind.SIGNAL, "c/slice/ada/train/child", False),
        (Kind.UPDATE, "c/scheduler", False),
        (Kind.UPDATE, "c/job/ada/train/child", False),
        (Kind.ACTIVITY, "c/host/h c/session/ada/train:0/exec_task/1", False),
        (Kind.ACTIVITY, "c/job/ada/train", False),
    ],
)
def test_the_key_of_a_job_is_for_itself_and_its_children(
    kind: Kind, receiver: str, may: bool
) -> None:
    """It starts no command on a host, and speaks for no other job."""
    message = Message(kind, "any", receiver)

    assert may_send(JOB, message) is may
    assert bool(KEY.problem(message, proof(KEY.of_job(JOB), message))) is not may
    assert not KEY.problem(message, proof(KEY, message))
