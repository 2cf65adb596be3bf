"""Bundles on a host: what is unpacked is what was packed, whatever the store, the network or an
attacker make of it.
"""

import asyncio
import contextlib
import gzip
import hashlib
import io
import os
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris.activities.host.files.bundles import Bundles
from iris.activities.host.runtimes.base import HostFault, JobFault
from iris.model import store_paths
from iris.model.job.bundles import Bundle
from iris.storage.object_store import Store
from tests.small_disk import small_disk
from tests.strategies import examples

ROOM = 100_000_000


def a_file(name: str, data: bytes = b"", mode: int = 0o644) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), mode
    return member, data


def a_member(name: str, kind: bytes, to: str = "") -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode = kind, to, 0o755
    return member, b""


def packed(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """The archive, uncompressed."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for member, data in members:
            tar.addfile(member, io.BytesIO(data))
    return archive.getvalue()


def named(archive: bytes) -> Bundle:
    return Bundle(sha256=hashlib.sha256(archive).hexdigest(), size=len(archive))


async def stored(store: Store, *members: tuple[tarfile.TarInfo, bytes]) -> Bundle:
    archive = packed(*members)
    bundle = named(archive)
    await store.put(store_paths.bundle(bundle.sha256), gzip.compress(archive))
    return bundle


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store((tmp_path / "store").as_uri(), create=True)


@pytest.fixture
def bundles(store: Store, tmp_path: Path) -> Bundles:
    return Bundles(store, tmp_path / "cache", ROOM, pauses=(0.01, 0.01))


def files(directory: Path) -> list[str]:
    """All that lies below, but for directories and locks."""
    found = (path for path in directory.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(str(path.relative_to(directory)) for path in found if path.suffix != ".lock")


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


class Unsteady(Store):
    """A store that is away, or answers with something else, so many times before it is itself.

    Args:
        instead: what it gives instead; None: it does not answer.
    """

    def __init__(self, url: str, times: int, instead: bytes | None = None) -> None:
        super().__init__(url)
        self.left = times
        self._instead = instead

    async def get_file(self, path: str, file: Path) -> bool:
        if self.left == 0:
            return await super().get_file(path, file)
        self.left -= 1
        if self._instead is None:
            raise OSError("connection refused")
        file.write_bytes(self._instead)
        return True


async def test_the_files_are_there_as_they_were_packed(
    store: Store, bundles: Bundles, tmp_path: Path
) -> None:
    """Names of any kind, folders, what may be executed, links to a neighbour: as in the user's
    directory.
    """
    long = "/".join(["deep" * 10] * 6)
    bundle = await stored(
        store,
        a_member("empty", tarfile.DIRTYPE),
        a_file(f"{long}/name.txt", b"far down"),
        a_file("latest/ünï code\n.txt", b"odd"),
        a_file("run.sh", b"#!/bin/sh\nexit 7\n", mode=0o755),
        a_file("train.py", b"print('hello')"),
        a_member("there", tarfile.SYMTYPE, "latest"),
    )
    await bundles.unpack(bundle, tmp_path / "work")

    work = tmp_path / "work"
    assert files(work) == sorted(
        [f"{long}/name.txt", "latest/ünï code\n.txt", "run.sh", "there", "train.py"]
    )
    assert (work / "empty").is_dir()
    assert (work / "train.py").read_bytes() == b"print('hello')"
    assert (work / "there" / "ünï code\n.txt").read_bytes() == b"odd"
    assert (work / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (work / "train.py").stat().st_mode & 0o777 == 0o644


async def test_the_next_attempt_needs_no_store_and_gets_files_of_its_own(
    store: Store, bundles: Bundles, tmp_path: Path
) -> None:
    """A gang restarts quickly, also while the store is away; and what one attempt writes, no other
    may find.
    """
    bundle = await stored(store, a_file("train.py", b"one"))
    await bundles.unpack(bundle, tmp_path / "first")
    (tmp_path / "first" / "train.py").write_bytes(b"changed")
    (tmp_path / "store" / store_paths.bundle(bundle.sha256)).unlink()
    await bundles.unpack(bundle, tmp_path / "second")

    assert (tmp_path / "second" / "train.py").read_bytes() == b"one"


def _rewrite(copy: Path, how: str) -> None:
    """What a program of the same user can do to a bundle that is kept."""
    if how == "other files":
        copy.write_bytes(packed(a_file("train.py", b"evil")))
        return
    if how == "one byte":
        with copy.open("r+b") as file:
            file.seek(512)
            file.write(b"E")
        return
    if how == "longer":
        with copy.open("ab") as file:
            file.write(bytes(512))
        return
    copy.unlink()
    match how:
        case "a link to other files":
            copy.with_name("other").write_bytes(packed(a_file("train.py", b"evil")))
            copy.symlink_to("other")
        case "a pipe":
            os.mkfifo(copy)
        case "a directory":
            copy.mkdir()


@pytest.mark.parametrize(
    "how",
    ["other files", "one byte", "longer", "gone", "a link to other files", "a pipe", "a directory"],
)
async def test_a_kept_bundle_that_a_program_has_rewritten_is_fetched_again(
    store: Store, bundles: Bundles, tmp_path: Path, how: str
) -> None:
    """One user's job can write to what the host keeps; the next user's job must not run what it
    wrote.
    """
    bundle = await stored(store, a_file("train.py", b"good"))
    await bundles.unpack(bundle, tmp_path / "first")
    [copy] = (tmp_path / "cache").rglob("bundle.tar")
    _rewrite(copy, how)
    await asyncio.wait_for(bundles.unpack(bundle, tmp_path / "second"), 60)

    assert (tmp_path / "second" / "train.py").read_bytes() == b"good"
    (tmp_path / "store" / store_paths.bundle(bundle.sha256)).unlink()
    await bundles.unpack(bundle, tmp_path / "third")
    assert (tmp_path / "third" / "train.py").read_bytes() == b"good"


async def test_a_rewritten_bundle_that_cannot_be_fetched_again_is_the_hosts_fault(
    store: Store, bundles: Bundles, tmp_path: Path
) -> None:
    """Nothing is better than the wrong program; another host may still have the right one."""
    bundle = await stored(store, a_file("train.py", b"good"))
    await bundles.unpack(bundle, tmp_path / "first")
    [copy] = (tmp_path / "cache").rglob("bundle.tar")
    _rewrite(copy, "other files")
    away = Bundles(Unsteady(store.url, 3), tmp_path / "cache", ROOM, pauses=(0.01, 0.01))
    with pytest.raises(HostFault, match="does not answer"):
        await away.unpack(bundle, tmp_path / "second")

    assert not (tmp_path / "second").exists()


async def test_what_is_kept_is_bounded(store: Store, tmp_path: Path) -> None:
    """Every change of a user's code is another bundle."""
    bundles = Bundles(store, tmp_path / "cache", 50_000)
    for number in range(8):
        bundle = await stored(store, a_file("data", bytes([number]) * 20_000))
        await bundles.unpack(bundle, tmp_path / str(number))

    assert len(list((tmp_path / "cache").rglob("bundle.tar"))) == 1


async def test_a_store_that_comes_back_is_waited_for(store: Store, tmp_path: Path) -> None:
    """A moment without network must not cost an attempt."""
    bundle = await stored(store, a_file("train.py"))
    await Bundles(Unsteady(store.url, 2), tmp_path / "cache", ROOM, pauses=(0.01, 0.01)).unpack(
        bundle, tmp_path / "work"
    )

    assert files(tmp_path / "work") == ["train.py"]


async def test_a_store_that_stays_away_is_not_the_users_fault(store: Store, tmp_path: Path) -> None:
    """Another host may reach it; the reason names the store."""
    bundle = await stored(store, a_file("train.py"))
    bundles = Bundles(Unsteady(store.url, 3), tmp_path / "cache", ROOM, pauses=(0.01, 0.01))
    with pytest.raises(
        HostFault, match=r"file://.*/store does not answer: connection refused"
    ) as caught:
        await bundles.unpack(bundle, tmp_path / "work")

    assert caught.value.fault == "store"


async def test_a_bundle_that_is_not_in_the_store_is_to_be_submitted_again(
    bundles: Bundles, tmp_path: Path
) -> None:
    """No other host would find it either."""
    with pytest.raises(JobFault, match=r"is not in the store .* submit the job again"):
        await bundles.unpack(named(packed(a_file("gone"))), tmp_path / "work")

    assert files(tmp_path / "cache") == []


@pytest.mark.parametrize(
    "instead",
    [
        gzip.compress(packed(a_file("train.py", b"evil"))),
        gzip.compress(packed(a_file("train.py", b"good")))[:-20],
        b"not gzip at all",
        b"",
    ],
    ids=["other files", "cut off", "no archive", "empty"],
)
async def test_a_bundle_that_was_tampered_with_is_refused(
    store: Store, tmp_path: Path, instead: bytes
) -> None:
    """Who can write to the store must not thereby run programs on the hosts; and a damaged copy
    must not stay.
    """
    bundle = await stored(store, a_file("train.py", b"good"))
    bundles = Bundles(Unsteady(store.url, 2, instead), tmp_path / "cache", ROOM)
    with pytest.raises(HostFault, match=f"{bundle.sha256[:12]} .* is damaged") as caught:
        await bundles.unpack(bundle, tmp_path / "work")
    assert caught.value.fault == "bundle"
    assert not (tmp_path / "work").exists()

    await bundles.unpack(bundle, tmp_path / "work")
    assert (tmp_path / "work" / "train.py").read_bytes() == b"good"


async def test_a_copy_damaged_on_the_way_is_fetched_once_more(store: Store, tmp_path: Path) -> None:
    """What arrives wrong once may arrive right the next time."""
    bundle = await stored(store, a_file("train.py", b"good"))
    await Bundles(Unsteady(store.url, 1, b"noise"), tmp_path / "cache", ROOM).unpack(
        bundle, tmp_path / "work"
    )

    assert (tmp_path / "work" / "train.py").read_bytes() == b"good"


async def test_an_archive_that_swells_is_stopped_where_it_should_end(
    store: Store, bundles: Bundles, tmp_path: Path
) -> None:
    """A few kilobytes may unpack to a full disk."""
    bundle = named(packed(a_file("train.py", b"good")))
    await store.put(
        store_paths.bundle(bundle.sha256), gzip.compress(bytes(300_000_000), compresslevel=1)
    )
    with pytest.raises(HostFault, match="the archive is larger than the 10 KiB of the bundle"):
        await bundles.unpack(bundle, tmp_path / "work")


#: A link to the directory itself, so far down that a target through it seems to stay inside.
DOWN = [a_member("a/b", tarfile.DIRTYPE), a_member("a/b/top", tarfile.SYMTYPE, "../..")]


@pytest.mark.parametrize(
    ("members", "culprit"),
    [
        ([a_file("../escaped")], "'../escaped' is outside"),
        ([a_file("a/../../escaped")], "is outside"),
        ([a_file("/escaped")], "'/escaped' is outside"),
        (
            [a_member("out", tarfile.SYMTYPE, "/etc")],
            "'out' is a link out of the bundle, to '/etc'",
        ),
        ([a_member("a/out", tarfile.SYMTYPE, "../../x")], "'a/out' is a link out"),
        (
            [a_member("in", tarfile.SYMTYPE, "."), a_file("in/escaped")],
            "'in/escaped' is below 'in', which is a link",
        ),
        ([a_file("in/escaped"), a_member("in", tarfile.SYMTYPE, "..")], "'in' is a link out"),
        (
            [a_file("in/escaped"), a_member("in", tarfile.SYMTYPE, ".")],
            "'in' is a link, but other entries are below it",
        ),
        ([a_member("in", tarfile.SYMTYPE, "."), a_file("in")], "'in' is in the bundle twice"),
        ([a_file("in"), a_member("./in", tarfile.SYMTYPE, ".")], "'./in' is in the bundle twice"),
        (
            [*DOWN, a_member("out", tarfile.SYMTYPE, "a/b/top/..")],
            "'out' is a link whose target 'a/b/top/..' has '..' after",
        ),
        (
            [
                *DOWN,
                a_file("out"),
                a_member("out", tarfile.SYMTYPE, "a/b/top/.."),
                a_member("through", tarfile.LNKTYPE, "out"),
                a_file("through/escaped"),
            ],
            "'out' is a link whose target",
        ),
        (
            [
                *DOWN,
                a_file("a/b/victim"),
                a_member("hard", tarfile.LNKTYPE, "a/b/top/../victim"),
                a_file("hard", b"evil"),
            ],
            "'hard' is a hard link",
        ),
        ([a_member("hard", tarfile.LNKTYPE, "/etc/passwd")], "'hard' is a hard link"),
        ([a_member("empty", tarfile.SYMTYPE, "")], "'empty' is a link without a target"),
        ([a_member("pipe", tarfile.FIFOTYPE)], "'pipe' is not a file, directory"),
        ([a_member("disk", tarfile.BLKTYPE)], "'disk' is not a file, directory"),
        ([a_member("disk", tarfile.CHRTYPE)], "'disk' is not a file, directory"),
        ([a_file(".")], "'.' is not a valid name of a file"),
        ([a_file("file"), a_file("file/below")], "'file/below' is below 'file', which is a file"),
        ([a_file("n" * 300)], "has a name of 300 bytes"),
        ([a_file("/".join(["d"] * 200))], "is 200 levels deep"),
    ],
)
async def test_a_bundle_that_would_reach_out_of_its_directory_is_refused_before_anything_is_written(
    store: Store,
    bundles: Bundles,
    tmp_path: Path,
    members: list[tuple[tarfile.TarInfo, bytes]],
    culprit: str,
) -> None:
    """A container's program must not write to its host by way of its bundle; and the user is told
    which file it is.
    """
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "victim").write_text("untouched")
    bundle = await stored(store, a_file("fine"), *members)
    with pytest.raises(JobFault, match="cannot be unpacked") as caught:
        await bundles.unpack(bundle, tmp_path / "host" / "work")

    assert files(tmp_path / "host") == ["victim"]
    assert (tmp_path / "host" / "victim").read_text() == "untouched"
    assert not (tmp_path / "escaped").exists()
    assert culprit in str(caught.value)


NAMES = st.sampled_from(
    ["a", "b", "a/b", "a/a", "b/a/b", "./a", "a/", ".", "..", "../a", "a/../b", "/a"]
)
TARGETS = st.sampled_from(
    [
        "a",
        "b",
        "a/b",
        "..",
        "../..",
        "../a",
        "a/..",
        "a/../..",
        "b/a/../..",
        ".",
        "/",
        "../../../victim",
    ]
)
MEMBERS = st.one_of(
    st.builds(a_file, NAMES, st.just(b"evil")),
    st.builds(a_member, NAMES, st.sampled_from([tarfile.SYMTYPE, tarfile.LNKTYPE]), TARGETS),
    st.builds(a_member, NAMES, st.sampled_from([tarfile.DIRTYPE, tarfile.FIFOTYPE])),
)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(MEMBERS, max_size=6))
def test_no_bundle_writes_or_points_outside_of_its_directory(
    members: list[tuple[tarfile.TarInfo, bytes]],
) -> None:
    """Whatever the entries are and in whatever order: all of them within the directory, or none at
    all.
    """
    with tempfile.TemporaryDirectory() as root:
        host = Path(root) / "host"
        host.mkdir()
        (host / "victim").write_text("untouched")
        into, refused = host / "work", False

        async def run() -> None:
            store = Store((Path(root) / "store").as_uri(), create=True)
            await Bundles(store, Path(root) / "cache", ROOM).unpack(
                await stored(store, *members), into
            )

        try:
            asyncio.run(run())
        except JobFault:
            refused = True

        assert names_in(Path(root)) == ["cache", "host", "store"]
        assert names_in(host) == (["victim"] if refused else ["victim", "work"])
        assert (host / "victim").read_text() == "untouched"
        assert all(Path(os.path.realpath(path)).is_relative_to(into) for path in into.rglob("*"))
        assert (host / "victim").stat().st_nlink == 1


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_no_bytes_upset_a_host(data: st.DataObject) -> None:
    """An archive with any bytes changed is unpacked or refused: it neither hangs nor fails in
    another way.
    """
    archive = bytearray(
        packed(
            a_file("d" * 120, b"one"), a_member("in", tarfile.SYMTYPE, "d"), a_file("two", b"two")
        )
    )
    for _ in range(data.draw(st.integers(1, 4))):
        header = data.draw(st.integers(0, len(archive) // 512 - 1)) * 512
        start = header + data.draw(st.sampled_from([0, 100, 124, 135, 156, 157, 257, 345]))
        change = data.draw(st.binary(min_size=1, max_size=12))
        archive[start : start + len(change)] = change
        sealed = archive[header : header + 148] + b" " * 8 + archive[header + 156 : header + 512]
        archive[header + 148 : header + 156] = b"%06o\0 " % sum(sealed)
    with tempfile.TemporaryDirectory() as root:

        async def run() -> None:
            store = Store((Path(root) / "store").as_uri(), create=True)
            bundle = named(bytes(archive))
            await store.put(store_paths.bundle(bundle.sha256), gzip.compress(archive))
            await Bundles(store, Path(root) / "cache", ROOM).unpack(bundle, Path(root) / "work")

        with contextlib.suppress(JobFault):
            asyncio.run(run())


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        (tarfile.XHDTYPE, 4),
        (tarfile.XGLTYPE, 4),
        (tarfile.GNUTYPE_SPARSE, 4),
        (tarfile.GNUTYPE_LONGNAME, 1_000_000),
    ],
)
async def test_headers_that_can_keep_a_reader_busy_are_refused(
    store: Store, bundles: Bundles, tmp_path: Path, kind: bytes, size: int
) -> None:
    """Workspaces are packed without them; some can block the interpreter for minutes, and with it
    all tasks of the host.
    """
    header, _ = a_member("odd", kind)
    archive = header.tobuf(tarfile.GNU_FORMAT) + packed(a_file("fine"))
    if kind == tarfile.GNUTYPE_LONGNAME:
        header.size = size
        archive = (
            header.tobuf(tarfile.GNU_FORMAT)
            + b"1" * size
            + bytes(-size % 512)
            + packed(a_file("fine"))
        )
    await store.put(store_paths.bundle(named(archive).sha256), gzip.compress(archive))
    with pytest.raises(JobFault, match="not a tar archive"):
        await bundles.unpack(named(archive), tmp_path / "work")

    assert not (tmp_path / "work").exists()


async def test_no_file_is_set_to_run_as_its_owner(
    store: Store, bundles: Bundles, tmp_path: Path
) -> None:
    """An agent is often root, and so is the owner of what it unpacks."""
    await bundles.unpack(await stored(store, a_file("tool", mode=0o7777)), tmp_path / "work")

    assert (tmp_path / "work" / "tool").stat().st_mode & 0o7777 == 0o755


async def test_links_that_lead_nowhere_are_the_users_to_keep(
    store: Store, bundles: Bundles, tmp_path: Path
) -> None:
    """Workspaces have such links, and nobody is hurt by them."""
    links = {"a": "b", "b": "a", "dangling": "none"}
    bundle = await stored(
        store, *(a_member(name, tarfile.SYMTYPE, to) for name, to in links.items())
    )
    await bundles.unpack(bundle, tmp_path / "work")

    assert files(tmp_path / "work") == sorted(links)


async def test_bytes_that_are_no_archive_although_they_are_the_right_ones_are_the_users(
    store: Store, tmp_path: Path
) -> None:
    """Whoever submits by hand finds out at once what is wrong."""
    archive = b"plain text" * 100
    await store.put(store_paths.bundle(named(archive).sha256), gzip.compress(archive))
    with pytest.raises(JobFault, match="not a tar archive"):
        await Bundles(store, tmp_path / "cache", ROOM).unpack(named(archive), tmp_path / "work")


@pytest.mark.parametrize("full", ["the cache's", "the attempt's"])
async def test_a_full_disk_is_the_hosts_fault_and_nothing_half_done_stays(
    store: Store, tmp_path: Path, full: str
) -> None:
    """The attempt goes to another host, and the next one here is not misled by a rest."""
    bundle = await stored(store, a_file("data", bytes(3_000_000)))
    with small_disk(tmp_path / "disk", kib=1000) as disk:
        cache, work = (
            (disk, tmp_path / "work")
            if full == "the cache's"
            else (tmp_path / "cache", disk / "work")
        )
        with pytest.raises(HostFault, match="disk of this host is full") as caught:
            await Bundles(store, cache, ROOM).unpack(bundle, work)

        assert caught.value.fault == "disk"
        assert full == "the attempt's" or files(cache) == []


class Silent(Store):
    """A store that takes the question and never answers."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked = asyncio.Event()

    async def get_file(self, path: str, file: Path) -> bool:
        self.asked.set()
        return await asyncio.Event().wait()


async def test_a_cancelled_unpacking_stands_in_nobodys_way(store: Store, tmp_path: Path) -> None:
    """A job is cancelled while its store hangs; the next job on this host has the same bundle."""
    bundle = await stored(store, a_file("train.py"))
    silent = Silent(store.url)
    waiting = asyncio.create_task(
        Bundles(silent, tmp_path / "cache", ROOM).unpack(bundle, tmp_path / "first")
    )
    await asyncio.wait_for(silent.asked.wait(), 60)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    await asyncio.wait_for(
        Bundles(store, tmp_path / "cache", ROOM).unpack(bundle, tmp_path / "second"), 60
    )
    assert files(tmp_path / "second") == ["train.py"]
