"""Packs a workspace into one tar archive. The same files always give the same archive."""

import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tarfile import BLOCKSIZE, GNU_FORMAT, SYMTYPE, TarInfo
from types import TracebackType
from typing import IO, NamedTuple, Self

from iris.client.workspace.extra_files import ExtraFile, place_in_workspace
from iris.client.workspace.files import IGNORE_FILE, workspace_files
from iris.model.errors import InvalidValue, IrisError, Rejected
from iris.model.job.bundles import MAX_BUNDLE, Bundle, Entry, Kind, climbs_after_a_name, offence
from iris.model.units import MIB, format_bytes

#: The maximum number of times that a file is read if it changes while it is packed. The last copy
#: is used.
_MAX_SCANS = 3
#: The maximum number of files that an error names.
_NAMED = 10
_COPY = 1 * MIB


class Packed:
    """A workspace that is packed into a temporary archive file. `close` deletes the file."""

    def __init__(self, archive: IO[bytes], bundle: Bundle, files: int) -> None:
        #: The uncompressed tar archive.
        self.archive = archive
        self.bundle = bundle
        #: The number of files and links in the archive.
        self.files = files

    def close(self) -> None:
        self.archive.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Member(NamedTuple):
    """A file or link that is added to the archive."""

    source: Path
    #: The result of `os.stat` when the file was selected.
    stat: os.stat_result
    #: The target of a link, relative to the link's directory. Empty for a file.
    link: str = ""


def pack(
    directory: Path | None,
    files: Sequence[ExtraFile] = (),
    selected: Callable[[int], None] = lambda _: None,
) -> Packed:
    """Packs the workspace of the directory and the extra files.

    Args:
        directory: None packs only the extra files.
        selected: called with the number of files and links before they are read, which may take
            long.

    Raises:
        Rejected: the workspace is too large, a link leads out of it, or a file cannot be read.
        IrisError: this machine has no disk space for the archive.
    """
    if directory is not None and directory.resolve() == Path("/"):
        raise Rejected("workspace: / is the whole machine; give a project's directory")
    members = (
        _members(directory.resolve(), workspace_files(directory.resolve()))
        if directory is not None
        else {}
    )
    _add_extra(members, directory, files)
    _check_names(members)
    selected(len(members))
    sizes = {name: 0 if member.link else member.stat.st_size for name, member in members.items()}
    _check_size(
        directory, sizes, sum(BLOCKSIZE + size + -size % BLOCKSIZE for size in sizes.values())
    )
    try:
        archive = tempfile.TemporaryFile()  # noqa: SIM115 `Packed` closes it
    except OSError as error:
        raise no_space(error) from None
    try:
        for name in sorted(members, key=os.fsencode):
            sizes[name] = _write(archive, name, members[name])
        _append(archive, bytes(2 * BLOCKSIZE))
        size = archive.tell()
        _check_size(directory, sizes, size)  # files may have grown while they were packed
        archive.seek(0)  # this also writes the buffered data
        bundle = Bundle(sha256=hashlib.file_digest(archive, "sha256").hexdigest(), size=size)
        archive.seek(0)
    except BaseException:
        archive.close()
        raise
    return Packed(archive, bundle, len(members))


def _members(root: Path, paths: Sequence[str]) -> dict[str, _Member]:
    """Returns the files and links at these paths, without sockets, devices and pipes."""
    members: dict[str, _Member] = {}
    for path in paths:
        source = root / path
        try:
            found = source.lstat()
        except OSError:  # the file was deleted since it was listed
            continue
        if stat.S_ISLNK(found.st_mode):
            members[path] = _Member(source, found, _link(root, path))
        elif stat.S_ISREG(found.st_mode) and not any(
            str(parent) in members for parent in Path(path).parents
        ):
            # If a link replaced a directory, git can still list the files below it. The archive
            # gets only the link.
            members[path] = _Member(source, found)
    return members


def _link(root: Path, path: str) -> str:
    """Returns a link's target, relative to the link's directory.

    Keeps the target's text unless it is an absolute path, leads through directories outside, or
    would be refused by a host.
    """
    target = str((root / path).readlink())
    target_path = os.path.normpath((root / path).parent / target)
    for place in (target_path, os.path.realpath(root / path)):
        if not Path(place).is_relative_to(root):
            problem = f"workspace: the link {path} points outside the workspace, to {target}"
            if (root / "pyvenv.cfg").is_file():
                raise Rejected(
                    f"{problem}: {root} itself is a Python environment; submit from a directory"
                    " beside it"
                )
            raise Rejected(
                f"{problem}; exclude it in {IGNORE_FILE}, or copy the file into the workspace"
            )
    if os.path.normpath(Path(path).parent / target).startswith(("/", "..")):
        return os.path.relpath(target_path, (root / path).parent)
    if climbs_after_a_name(target):  # hosts refuse such a target
        return os.path.relpath(os.path.realpath(root / path), (root / path).parent)
    return target


def _add_extra(
    members: dict[str, _Member], directory: Path | None, files: Sequence[ExtraFile]
) -> None:
    added: dict[str, Path] = {}
    for source, wanted in files:
        dest = place_in_workspace(wanted) if wanted is not None else _own_place(directory, source)
        if added.setdefault(dest, source) != source:
            raise InvalidValue(
                "file",
                dest,
                f"is the destination of both {added[dest]} and {source}",
                "give each its own destination: PATH:DEST",
            )
        try:
            members[dest] = _Member(source, source.stat())
        except OSError as error:
            raise _unreadable(str(source), error) from None
    for dest in added:
        in_the_way = next((name for name in map(str, Path(dest).parents) if name in members), None)
        if in_the_way is None:
            in_the_way = next((dest for name in members if name.startswith(f"{dest}/")), None)
        if in_the_way is not None:
            raise InvalidValue(
                "file", dest, f"conflicts with {in_the_way}", "choose another PATH:DEST"
            )


def _own_place(directory: Path | None, source: Path) -> str:
    # Do not resolve the last component: a link to a file is packed as a file with the link's name.
    place = source.parent.resolve() / source.name
    if directory is None or not place.is_relative_to(directory.resolve()):
        return source.name
    return str(place.relative_to(directory.resolve()))


def _write(archive: IO[bytes], name: str, member: _Member) -> int:
    """Appends the member and returns the size of its content. The header's size matches the
    content, even if the file changes.
    """
    info = TarInfo(name)
    info.mode = 0o755 if member.stat.st_mode & stat.S_IXUSR else 0o644
    if member.link:
        info.type, info.linkname, info.mode = SYMTYPE, member.link, 0o777
    begin = archive.tell()
    if member.link:
        _append(archive, info.tobuf(GNU_FORMAT, "utf-8", "surrogateescape"))
        return 0
    for scan in range(1, _MAX_SCANS + 1):
        if scan > 1:
            archive.seek(begin)
            archive.truncate()
        try:
            with member.source.open("rb") as source:
                before = os.fstat(source.fileno())
                info.size = before.st_size
                _append(archive, info.tobuf(GNU_FORMAT, "utf-8", "surrogateescape"))
                whole = _copy(source, archive, info.size)
                after = os.fstat(source.fileno())
        except OSError as error:
            raise _unreadable(name, error) from None
        calm = (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size)
        # A growing log changes at every read; any copy of its beginning is valid.
        if whole and (calm or scan == _MAX_SCANS):
            _append(archive, bytes(-info.size % BLOCKSIZE))
            return info.size
    raise Rejected(
        f"workspace: {name} shrank while it was packed; submit again when it is complete, or"
        f" exclude it in {IGNORE_FILE}"
    )


def _copy(source: IO[bytes], archive: IO[bytes], size: int) -> bool:
    """Copies this number of bytes. Returns False if the source has fewer."""
    while size > 0 and (data := source.read(min(size, _COPY))):
        _append(archive, data)
        size -= len(data)
    return size == 0


def _append(archive: IO[bytes], data: bytes) -> None:
    try:
        archive.write(data)
    except OSError as error:
        raise no_space(error) from None


def _check_names(members: Mapping[str, _Member]) -> None:
    """Raises if a host would refuse to unpack one of these members."""
    kinds = (
        (name, Kind.LINK if member.link else Kind.FILE, member.link)
        for name, member in members.items()
    )
    if why := offence(Entry(name, kind, target=target) for name, kind, target in kinds):
        raise Rejected(f"workspace: {why}; rename it, or exclude it in {IGNORE_FILE}")


def _check_size(directory: Path | None, sizes: Mapping[str, int], total: int) -> None:
    """Raises if the archive of these files is too large.

    Args:
        total: the archive's size.
    """
    if total <= MAX_BUNDLE:
        return
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:_NAMED]
    lines = [f"  {format_bytes(sizes[name]):>10}  {name}" for name in largest]
    if sum(sizes[name] for name in largest) < total / 2:
        lines += ["most of the size is in small files:", *_folders(sizes)]
    raise Rejected(
        f"workspace: {directory or 'the files of --file'} has {format_bytes(total)} in"
        f" {len(sizes):,} files, which is {total - MAX_BUNDLE:,} bytes more than the limit of"
        f" {format_bytes(MAX_BUNDLE)}; nothing was sent. Exclude files that the program does not"
        f" need in {IGNORE_FILE}, and put data into a bucket. The largest files:\n"
        + "\n".join(lines)
    )


def _folders(sizes: Mapping[str, int]) -> list[str]:
    """Returns the directories whose own files take the most space, as lines of an error."""
    within: dict[str, list[int]] = {}
    for name, size in sizes.items():
        within.setdefault(str(Path(name).parent), []).append(size)
    heaviest = sorted(within, key=lambda folder: (-sum(within[folder]), folder))[:_NAMED]
    return [
        f"  {format_bytes(sum(within[each])):>10}  {each}/ ({len(within[each]):,} files)"
        for each in heaviest
    ]


def _unreadable(name: str, error: OSError) -> Rejected:
    if isinstance(error, FileNotFoundError):
        return Rejected(f"workspace: {name} was deleted while it was being packed; submit again")
    return Rejected(
        f"workspace: {name} cannot be read ({error.strerror}); make it readable, or exclude it in"
        f" {IGNORE_FILE}"
    )


def no_space(error: OSError) -> IrisError:
    return IrisError(
        f"the workspace cannot be packed in {tempfile.gettempdir()} ({error.strerror}); free disk"
        " space there, or set TMPDIR to another directory"
    )
