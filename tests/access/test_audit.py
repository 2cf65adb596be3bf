"""Which entries of an audit a question asks for, and where a server's file is stored."""

import json
from datetime import UTC, date, datetime, timedelta

import pytest

from iris.access.audit import AuditFile, AuditQuestion, chunk_path, file_of, found_in
from iris.cli.audit import ENTRIES

NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)


def a_line(at: datetime = NOON, **fields: object) -> bytes:
    entry = {"at": at.isoformat(), "who": "ada", "role": "user", "what": "job/ada/train", **fields}
    return json.dumps(entry).encode()


def asked(**changes: object) -> AuditQuestion:
    question = AuditQuestion(NOON - timedelta(hours=1), NOON + timedelta(hours=1))
    return question._replace(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("job/ada/train", True),
        ("task/ada/train:3", True),
        ("job/ada/train/child", True),
        ("job/ada/train2", False),
        ("job/bob/train", False),
        ("scheduler", False),
    ],
)
def test_the_audit_of_a_job_has_its_tasks_and_its_child_jobs(what: str, found: bool) -> None:
    """Whoever cancelled one task changed the job."""
    audit = found_in([a_line(what=what)], asked(job="ada/train"))

    assert bool(audit.entries) is found


def test_entries_are_those_of_the_time_and_the_person_in_the_order_of_time() -> None:
    """Several servers write, so lines come in any order."""
    lines = [
        a_line(NOON + timedelta(minutes=2), detail="second"),
        a_line(NOON + timedelta(minutes=1), detail="first"),
        a_line(NOON + timedelta(minutes=1), who="bob"),
        a_line(NOON - timedelta(hours=2)),
        a_line(NOON + timedelta(hours=1)),
    ]

    assert [each.detail for each in found_in(lines, asked(user="ada")).entries] == [
        "first",
        "second",
    ]


def test_an_entry_says_why_a_call_was_refused_and_how_many_are_missing() -> None:
    """The server leaves out lines when there are too many refused calls in a second."""
    line = a_line(who="bob", allowed=False, refusal="it is another's", left_out=7)

    (found,) = found_in([line], asked()).entries
    assert (found.refusal, found.left_out) == ("it is another's", 7)
    assert "REFUSED" in ENTRIES.table([found])
    assert "it is another's; 7 more" in " ".join(ENTRIES.table([found]).split())


def test_only_refused_calls_can_be_asked_for() -> None:
    """They are what an administrator looks for after an attack."""
    lines = [a_line(), a_line(who="bob", allowed=False, why="a reason of bob")]

    assert [each.who for each in found_in(lines, asked(refused=True)).entries] == ["bob"]


def test_lines_that_are_no_entries_are_counted() -> None:
    """A server that was killed can leave half a line."""
    audit = found_in([a_line(), b'{"at": "2026-', b"", a_line()], asked())

    assert (len(audit.entries), audit.unreadable) == (2, 1)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        (
            "audit-20261128T21-temporal-0.lab.jsonl",
            AuditFile(date(2026, 11, 28), 21, "temporal-0.lab"),
        ),
        ("audit-20260231T21-x.jsonl", None),
        ("audit-20261128T21-a b.jsonl", None),
        ("audit-20261128T21-x.shipped", None),
        ("lock", None),
    ],
)
def test_only_files_with_the_name_of_an_audit_are_stored(name: str, file: AuditFile | None) -> None:
    """The directory has marks and a lock, too."""
    assert file_of(name) == file


def test_parts_of_one_file_sort_by_their_place() -> None:
    """So what is stored reads like the file."""
    file = AuditFile(date(2026, 11, 28), 3, "server-1")

    assert [chunk_path("lab", file, offset) for offset in (0, 1_000_000)] == [
        "audit/lab/2026-11-28/03-server-1-0000000000.jsonl",
        "audit/lab/2026-11-28/03-server-1-0001000000.jsonl",
    ]
