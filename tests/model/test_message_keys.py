"""Codes of messages: what they bind, and what the key of a job is for."""

from datetime import UTC, datetime

import pytest

from iris.model.message_keys import CODE_BYTES, KEY_BYTES, Claim, MessageKey, may_send, named

KEY = MessageKey(bytes(range(KEY_BYTES)))
JOB = "ada/train"


def test_a_code_binds_the_receiver_and_each_part_of_a_message() -> None:
    """Parts that give the same text when they are joined have other codes."""
    code = KEY.code("workflow a", [b"one", b"two"])

    assert len(code) == CODE_BYTES
    assert KEY.is_code(code, "workflow a", [b"one", b"two"])
    assert not KEY.is_code(code, "workflow b", [b"one", b"two"])
    for other in ([b"onet", b"wo"], [b"one"], [b"two", b"one"], [b"one", b"two", b""]):
        assert not KEY.is_code(code, "workflow a", other)
    assert not MessageKey(bytes(KEY_BYTES)).is_code(code, "workflow a", [b"one", b"two"])


def test_each_job_has_a_key_that_is_not_that_of_the_cluster() -> None:
    """From it, the key of another job cannot be derived."""
    keys = {KEY.secret, KEY.of_job(JOB).secret, KEY.of_job("ada/train2").secret}

    assert len(keys) == 3
    assert {len(key) for key in keys} == {KEY_BYTES}
    assert KEY.of_job(JOB) == KEY.of_job(JOB)


def test_a_key_does_not_show_in_texts() -> None:
    """Logs and tracebacks show values."""
    assert "secret" not in repr(KEY)
    assert KEY.id not in (KEY.secret.hex(), KEY.secret.hex()[:16])


def test_a_claim_stays_the_same_on_its_way() -> None:
    """Its time has milliseconds."""
    claim = Claim(named("signal", "hold"), datetime(2026, 1, 2, 3, 4, 5, 6000, UTC), "a/1")

    assert Claim.decoded(claim.encoded()) == claim


@pytest.mark.parametrize(
    ("action", "workflow", "may"),
    [
        ("start", "c/job/ada/train/child", True),
        ("start", "c/job/ada/train/child/grandchild", True),
        ("start", "c/job/ada/train", False),
        ("start", "c/job/ada/train2", False),
        ("start", "c/job/ada/other", False),
        ("start", "c/schedule/ada/train/child", False),
        ("start", "c/task/ada/train:0", False),
        ("start", "c/scheduler", False),
        ("signal hold", "c/job/ada/train", True),
        ("signal hold", "c/job/ada/train/child", True),
        ("signal cancel_task", "c/task/ada/train:3", True),
        ("signal hold", "c/job/ada/train2", False),
        ("signal hold", "c/task/ada/train2:0", False),
        ("signal drain", "c/slice/ada/train/child", False),
        ("update exchange", "c/scheduler", False),
        ("activity", "c/host/h/exec_task/1", False),
        ("query status", "c/job/bob/other", True),
        ("", "c/job/ada/train/child", True),
        ("", "c/job/bob/other", False),
    ],
)
def test_the_key_of_a_job_is_for_itself_and_its_children(
    action: str, workflow: str, may: bool
) -> None:
    """It reads everything, as everybody can. Without an action it is a part of a message."""
    assert may_send(JOB, action, workflow) is may
    assert may_send("", action, workflow)
