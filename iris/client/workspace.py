"""Packing a workspace: its files become one tar archive that is the same wherever and whenever the same files are packed."""

import hashlib
import os
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from tarfile import BLOCKSIZE, GNU_FORMAT, SYMTYPE, TarInfo
from types import TracebackType
from typing import IO, NamedTuple, Self

from iris.bundles import MAX_BUNDLE, Bundle
from iris.client.workspace_files import IGNORE_FILE, workspace_files
from iris.errors import InvalidValue, IrisError, Rejected
from iris.units import MIB, format_bytes

#: How often a file that is just being written is read again before what is there is taken.
_LOOKS = 3
#: How many files a refusal names.
_NAMED = 10
_COPY = 1 * MIB


class ExtraFile(NamedTuple):
    """A file that goes along although it is ignored, or lies elsewhere."""

    source: Path
    #: Its path in the workspace. None: where it is; or, from outside of the workspace, its name.
    dest: str | None = None


class Packed:
    """A packed workspace, on its way to a store; its archive is a temporary file until this is closed."""

    def __init__(self, archive: IO[bytes], bundle: Bundle, files: int) -> None:
        #: The tar archive, not compressed.
        self.archive = archive
        self.bundle = bundle
        #: How many files and links are in it.
        self.files = files

    def close(self) -> None:
        self.archive.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class _Member(NamedTuple):
    """What becomes a member of the archive."""

    source: Path
    #: As it was when it was chosen.
    stat: os.stat_result
    #: Of a link: to where it leads, from its own directory.
    link: str = ""


def parse_extra(text: str) -> ExtraFile:
    """The file of `PATH[:DEST]`; a colon in the name of a file that exists is part of its name.

    Raises:
        InvalidValue: there is no such file, or the destination is not inside of a workspace.
    """
    path, colon, dest = (text, "", "") if Path(text).exists() else text.rpartition(":")
    source = Path(path if colon else text)
    if source.is_dir():
        raise InvalidValue("file", path or text, "is a directory", f"name its files, or take it in with ! in {IGNORE_FILE}")
    if not source.is_file():
        raise InvalidValue("file", path or text, "is no file", "write PATH[:DEST]")
    if not colon:
        return ExtraFile(source)
    return ExtraFile(source, _place(f"{dest}{source.name}" if dest.endswith("/") else dest))


def _place(dest: str) -> str:
    """The path of a destination, without what does not matter in it.

    Raises:
        InvalidValue: it is not inside of a workspace.
    """
    parts = Path(dest).parts
    if not parts or Path(dest).is_absolute() or ".." in parts:
        raise InvalidValue("file", dest, "is no place in a workspace", "write PATH:DEST with DEST relative to its directory")
    return "/".join(parts)


def pack(directory: Path | None, files: Sequence[ExtraFile] = ()) -> Packed:
    """Pack the workspace of that directory (None: an empty one) and the files beside it.

    Raises:
        Rejected: it is too large, a link leads out of it, or a file cannot be read.
        IrisError: this machine has no room for the archive.
    """
    if directory is not None and directory.resolve() == Path("/"):
        raise Rejected("workspace: / is the whole machine; name a project's directory")
    members = _members(directory.resolve(), workspace_files(directory.resolve())) if directory is not None else {}
    _add_extra(members, directory, files)
    sizes = {name: 0 if member.link else member.stat.st_size for name, member in members.items()}
    _check_size(directory, sizes, sum(BLOCKSIZE + size + -size % BLOCKSIZE for size in sizes.values()))
    try:
        archive = tempfile.TemporaryFile()  # noqa: SIM115 closed with what is returned
    except OSError as error:
        raise no_room(error) from None
    try:
        for name in sorted(members, key=os.fsencode):
            sizes[name] = _write(archive, name, members[name])
        _append(archive, bytes(2 * BLOCKSIZE))
        size = archive.tell()
        _check_size(directory, sizes, size)  # files may have grown meanwhile
        archive.seek(0)  # what is still buffered is written, too
        bundle = Bundle(sha256=hashlib.file_digest(archive, "sha256").hexdigest(), size=size)
        archive.seek(0)
    except BaseException:
        archive.close()
        raise
    return Packed(archive, bundle, len(members))


def _members(root: Path, paths: Sequence[str]) -> dict[str, _Member]:
    """The files and links of these; sockets, devices and pipes stay behind."""
    members: dict[str, _Member] = {}
    for path in paths:
        source = root / path
        try:
            found = source.lstat()
        except OSError:  # gone since it was listed
            continue
        if stat.S_ISLNK(found.st_mode):
            members[path] = _Member(source, found, _link(root, path))
        elif stat.S_ISREG(found.st_mode) and not any(str(parent) in members for parent in Path(path).parents):
            # What git still has below a directory that has become a link is left to the link.
            members[path] = _Member(source, found)
    return members


def _link(root: Path, path: str) -> str:
    """To where a link leads, from its directory: the words it has, unless they name directories of this machine."""
    target = str((root / path).readlink())
    meant = os.path.normpath((root / path).parent / target)
    for place in (meant, os.path.realpath(root / path)):
        if not Path(place).is_relative_to(root):
            raise Rejected(
                f"workspace: the link {path} leads out of it, to {target}; name it in {IGNORE_FILE}, or put the file itself there"
            )
    if os.path.normpath(Path(path).parent / target).startswith(("/", "..")):
        return os.path.relpath(meant, (root / path).parent)
    return target


def _add_extra(members: dict[str, _Member], directory: Path | None, files: Sequence[ExtraFile]) -> None:
    added: dict[str, Path] = {}
    for source, asked in files:
        dest = _place(asked) if asked is not None else _own_place(directory, source)
        if added.setdefault(dest, source) != source:
            raise InvalidValue("file", dest, f"would be {added[dest]} and {source}", "give each a place of its own: PATH:DEST")
        try:
            members[dest] = _Member(source, source.stat())
        except OSError as error:
            raise _unreadable(str(source), error) from None
    for dest in added:
        in_the_way = next((name for name in map(str, Path(dest).parents) if name in members), None)
        if in_the_way is None:
            in_the_way = next((dest for name in members if name.startswith(f"{dest}/")), None)
        if in_the_way is not None:
            raise InvalidValue("file", dest, f"cannot be put there: {in_the_way} is in the way", "choose another PATH:DEST")


def _own_place(directory: Path | None, source: Path) -> str:
    # The last name is kept as it is: what is a link to a file becomes that file.
    place = source.parent.resolve() / source.name
    if directory is None or not place.is_relative_to(directory.resolve()):
        return source.name
    return str(place.relative_to(directory.resolve()))


def _write(archive: IO[bytes], name: str, member: _Member) -> int:
    """Append the member; the size of its content. What it says of itself is what it holds, however the file changes meanwhile."""
    info = TarInfo(name)
    info.mode = 0o755 if member.stat.st_mode & stat.S_IXUSR else 0o644
    if member.link:
        info.type, info.linkname, info.mode = SYMTYPE, member.link, 0o777
    begin = archive.tell()
    if member.link:
        _append(archive, info.tobuf(GNU_FORMAT, "utf-8", "surrogateescape"))
        return 0
    for look in range(1, _LOOKS + 1):
        if look > 1:
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
        # A log that somebody writes is never calm; its beginning is as good as any.
        if whole and (calm or look == _LOOKS):
            _append(archive, bytes(-info.size % BLOCKSIZE))
            return info.size
    raise Rejected(f"workspace: {name} shrinks while it is packed; submit again when it is written, or name it in {IGNORE_FILE}")


def _copy(source: IO[bytes], archive: IO[bytes], size: int) -> bool:
    """Copy so many bytes; whether there were as many."""
    while size > 0 and (data := source.read(min(size, _COPY))):
        _append(archive, data)
        size -= len(data)
    return size == 0


def _append(archive: IO[bytes], data: bytes) -> None:
    try:
        archive.write(data)
    except OSError as error:
        raise no_room(error) from None


# -- refusals ------------------------------------------------------------------------------------------------------------------


def _check_size(directory: Path | None, sizes: Mapping[str, int], total: int) -> None:
    """Raise when an archive of these files, so large in all, is too large."""
    if total <= MAX_BUNDLE:
        return
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:_NAMED]
    lines = [f"  {format_bytes(sizes[name]):>10}  {name}" for name in largest]
    if sum(sizes[name] for name in largest) < total / 2:
        lines += ["most of it is in small files:", *_folders(sizes)]
    raise Rejected(
        f"workspace: {directory or 'what --file names'} has {format_bytes(total)} in {len(sizes):,} files, and a bundle may have "
        f"{format_bytes(MAX_BUNDLE)}, which is {total - MAX_BUNDLE:,} bytes less; nothing was sent. Name what the program does "
        f"not need in {IGNORE_FILE}, and put data into a bucket. The largest files:\n" + "\n".join(lines)
    )


def _folders(sizes: Mapping[str, int]) -> list[str]:
    """The directories with the most in their own files, as lines of a refusal."""
    within: dict[str, list[int]] = {}
    for name, size in sizes.items():
        within.setdefault(str(Path(name).parent), []).append(size)
    heaviest = sorted(within, key=lambda folder: (-sum(within[folder]), folder))[:_NAMED]
    return [f"  {format_bytes(sum(within[each])):>10}  {each}/ ({len(within[each]):,} files)" for each in heaviest]


def _unreadable(name: str, error: OSError) -> Rejected:
    if isinstance(error, FileNotFoundError):
        return Rejected(f"workspace: {name} was deleted while it was being packed; submit again")
    return Rejected(
        f"workspace: {name} cannot be read ({error.strerror}); make it readable, or name it in {IGNORE_FILE} to leave it out"
    )


def no_room(error: OSError) -> IrisError:
    return IrisError(
        f"the workspace cannot be packed in {tempfile.gettempdir()} ({error.strerror}); make room there, or set TMPDIR to "
        f"a directory that has some"
    )
