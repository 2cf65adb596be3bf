"""A bundle's bounds of time and size, and its archive."""

import asyncio
import stat
import tarfile
from datetime import timedelta
from pathlib import Path

import pytest

from iris.client.operate.bundle import archive
from iris.client.operate.bundle.archive import (
    MAX_LINE,
    Collection,
    check_output,
    default_name,
    write_archive,
)
from iris.client.operate.bundle.redaction import Redactor
from iris.model.errors import InvalidValue, Unreachable
from tests.builders import at

SOON = timedelta(seconds=0.05)
LONG = timedelta(seconds=60)


async def test_what_does_not_answer_is_missing_with_its_reason_and_costs_no_other_part() -> None:
    """A fault is when parts do not answer, and then the others matter most."""
    collection = Collection()

    async def never() -> None:
        await asyncio.Event().wait()

    async def refuses() -> None:
        raise Unreachable("the control plane does not answer, token=opensesame\nand more")

    async def breaks() -> None:
        raise ZeroDivisionError

    async def answers() -> dict[str, int]:
        return {"hosts": 2}

    await collection.collect("never.json", never, within=SOON)
    await collection.collect("refused.json", refuses, within=LONG)
    await collection.collect("broken.json", breaks, within=LONG)
    await collection.collect("status.json", answers, within=LONG)
    written = collection.written(Redactor())
    assert written["status.json"] == b'{\n  "hosts": 2\n}\n'
    assert written["missing.txt"].decode().splitlines() == [
        "broken.json: ZeroDivisionError: ZeroDivisionError",
        "never.json: no answer within 0.05 s",
        "refused.json: the control plane does not answer, token=[hidden-1]",
    ]
    assert list(written) == ["status.json", "missing.txt"]


async def test_a_workflow_that_does_not_answer_is_not_asked_again() -> None:
    """Each question would take its whole time, and the service keeps few for a busy workflow."""
    collection, asked = Collection(), []

    async def answers() -> str:
        asked.append("first")
        return "x"

    async def never() -> None:
        asked.append("second")
        await asyncio.Event().wait()

    parts = {"a": answers, "b": never, "c": answers, "d": answers}
    assert not await collection.collect_in_turn(parts, within=SOON)
    assert asked == ["first", "second"]
    assert {*collection.missing} == {"b", "c", "d"}
    assert collection.missing["d"] == "not asked, because b is missing"
    assert await collection.collect_in_turn({"e": answers}, within=LONG)


def test_a_bundle_without_gaps_has_no_list_of_them() -> None:
    """The file's absence says that all is there."""
    collection = Collection()
    collection.add("x.json", {})
    assert list(collection.written(Redactor())) == ["x.json"]


def test_what_is_too_large_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle that no mail can carry is of no use; the small files say most."""
    monkeypatch.setattr(archive, "MAX_FILE", 100)
    monkeypatch.setattr(archive, "MAX_ALL", 150)
    collection = Collection()
    collection.add("a.txt", "a " * 51)
    collection.add("b.txt", "b " * 45)
    collection.add("c.txt", "c " * 45)
    collection.add("d.txt", "d " * 25)
    written = collection.written(Redactor())
    assert list(written) == ["b.txt", "d.txt", "missing.txt"]
    assert {*collection.missing} == {"a.txt", "c.txt"}


def test_a_long_line_of_a_log_is_cut() -> None:
    """One line may be a dump of megabytes."""
    collection = Collection()
    collection.add_log("x.log", ["short", "x " * MAX_LINE])
    written = collection.written(Redactor())["x.log"].decode()
    assert [len(line) for line in written.splitlines()] == [5, MAX_LINE + 2]


def test_a_secret_at_the_cut_of_a_line_is_hidden_as_a_whole() -> None:
    """The part before the cut would no longer be equal to the secret."""
    collection, secret = Collection(), "open-sesame-" * 10
    start = "x " * (MAX_LINE // 2 - 30)
    collection.add_log("x.log", [f"{start}{secret}"])
    assert b"open-sesame" not in collection.written(Redactor([secret]))["x.log"]


def test_an_interrupted_archive_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C: a part of an archive looks like a whole one, and blocks the next one of its name."""
    file = tmp_path / "x.tar.gz"

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tarfile.TarFile, "addfile", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_archive(file, "folder", {"a": b"a"}, at(0))
    assert not file.exists()


def test_an_archive_that_cannot_be_written_is_refused_before_the_cluster_is_asked(
    tmp_path: Path,
) -> None:
    """To learn it after a minute is too late."""
    (tmp_path / "here").touch()
    for file in (tmp_path / "away" / "x.tar.gz", tmp_path / "here" / "x.tar.gz", tmp_path / "here"):
        with pytest.raises(InvalidValue):
            check_output(file)
    check_output(tmp_path / "x.tar.gz")


def test_an_archive_is_private_and_replaces_no_file(tmp_path: Path) -> None:
    """It has names and addresses; and an older one may be the better report."""
    file = tmp_path / "x.tar.gz"
    write_archive(file, "folder", {"logs/a.log": b"a\n"}, at(0))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with tarfile.open(file) as opened:
        assert opened.getnames() == ["folder/logs/a.log"]
    before = file.read_bytes()
    with pytest.raises(InvalidValue, match="exists"):
        write_archive(file, "folder", {}, at(0))
    assert file.read_bytes() == before


def test_the_default_name_has_the_cluster_and_the_time_and_no_character_of_a_path() -> None:
    """A cluster may be named by its address."""
    assert (
        default_name("10.0.0.1:7233/lab", at(0)) == "iris-debug-10.0.0.1-7233-lab-20260101T120000Z"
    )
