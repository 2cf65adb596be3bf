"""Workspaces: which files go along, how they are packed, and that nothing is sent twice."""

import gzip
import hashlib
import io
import os
import re
import shutil
import socket
import subprocess
import tarfile
import tempfile
import threading
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.client.workspace.extra_files import ExtraFile, parse_extra
from iris.client.workspace.files import commit_of, is_project, workspace_files
from iris.client.workspace.pack import Packed, pack
from iris.client.workspace.upload import upload
from iris.model import store_paths
from iris.model.errors import InvalidValue, IrisError, Rejected
from iris.model.job.bundles import MAX_BUNDLE
from iris.storage.files import CannotWrite
from iris.storage.object_store import Store

NOBODY = 65534


def write(root: Path, *paths: str, text: str = "x") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def git(directory: Path, *arguments: str) -> None:
    said = (
        "-c",
        "user.name=ada",
        "-c",
        "user.email=ada@example.org",
        "-c",
        "protocol.file.allow=always",
    )
    subprocess.run(
        ["git", "-C", str(directory), *said, *arguments], check=True, capture_output=True
    )


def archive_of(packed: Packed) -> tarfile.TarFile:
    packed.archive.seek(0)
    return tarfile.open(fileobj=io.BytesIO(packed.archive.read()))


def content(directory: Path | None, *files: ExtraFile) -> dict[str, str]:
    """What the packed workspace has: text of files, and `-> target` of links."""
    with pack(directory, files) as packed, archive_of(packed) as tar:
        found = {}
        for member in tar:
            inside = tar.extractfile(member) if member.isfile() else None
            found[member.name] = (
                inside.read().decode() if inside is not None else f"-> {member.linkname}"
            )
        return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


@pytest.fixture
def repository(root: Path) -> Path:
    git(root, "init", "-q")
    return root


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store((tmp_path / "store").as_uri(), create=True)


def objects(store: Store) -> dict[str, tuple[int, int]]:
    """What lies in the store: when it was written and how large it is."""
    place = Path(store.url.removeprefix("file://"))
    return {
        str(path.relative_to(place)): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in place.rglob("*")
        if path.is_file()
    }


# -- the commit
# --------------------------------------------------------------------------------------------------


def test_a_workspace_has_the_commit_of_its_files_and_a_mark_if_they_differ(
    repository: Path, tmp_path: Path
) -> None:
    """A result of last month is worth little without the code that made it, and less with the wrong
    code.
    """
    assert commit_of(repository) == commit_of(tmp_path) == ""
    write(repository, "train.py", "inner/a.py")
    git(repository, "add", ".")
    git(repository, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    commit = commit_of(repository)

    assert re.fullmatch("[0-9a-f]{40}", commit)
    write(repository, "new.py")
    assert [commit_of(repository), commit_of(repository / "inner")] == [f"{commit}+", commit]
    (repository / "new.py").unlink()
    write(repository, "train.py", text="changed")
    assert commit_of(repository) == f"{commit}+"


# -- which files
# --------------------------------------------------------------------------------------------------


def test_a_git_workspace_is_what_is_tracked_and_what_is_new(repository: Path) -> None:
    """A file that was just written and not yet added is part of the experiment; one deleted and not
    committed is not.
    """
    write(repository, "tracked.py", "gone.py", "ignored.log", "deep/new.py", "forced.log")
    write(repository, ".gitignore", text="*.log\n")
    git(repository, "add", "tracked.py", "gone.py")
    git(repository, "add", "-f", "forced.log")
    (repository / "gone.py").unlink()
    assert workspace_files(repository) == [".gitignore", "deep/new.py", "forced.log", "tracked.py"]


#: Ignore files and paths on which git and its imitators like to differ.
RULES = {
    ".gitignore": (
        "*.log\n!keep.log\n/top.txt\nbuild/\ndata/**/raw\n\\#odd\n# no\ntrailing \nsub/*.tmp\n*\\"
        " space\n[ab].bin\n"
    ),
    "sub/.gitignore": "!special.log\n/anchored\n*.pyc\r\n",
    "sub/deep/.gitignore": "*\n!.gitignore\n!kept*\n",
    "build/.gitignore": "!wanted\n",
}
PATHS = (
    *(
        "a.log",
        "keep.log",
        "top.txt",
        "sub/top.txt",
        "build/wanted",
        "sub/build/x",
        "builder/x",
        "data/raw",
        "data/a/b/raw",
    ),
    *(
        "data/a/raw/file",
        "raw",
        "#odd",
        "trailing",
        "sub/x.tmp",
        "sub/deeper/x.tmp",
        "a space",
        "a.bin",
        "c.bin",
        "x.pyc",
    ),
    *(
        "sub/special.log",
        "sub/other.log",
        "sub/anchored",
        "sub/deep/anchored",
        "sub/x.pyc",
        "sub/deep/kept",
        "sub/deep/gone",
    ),
    *("sub/deep/dir/kept", "ünï/cödé.log", "ünï/cödé.py", "src/main.py", "sub/keep.log"),
)


def test_a_workspace_outside_of_git_has_the_files_that_git_would_take(root: Path) -> None:
    """Whether somebody has said `git init` must not change what runs."""
    for name, text in RULES.items():
        write(root, name, text=text)
    write(root, *PATHS)
    without = workspace_files(root)
    git(root, "init", "-q")
    assert without == workspace_files(root)
    assert {"src/main.py", "keep.log", "sub/special.log"} < set(without) < {*PATHS, *RULES}


@pytest.mark.parametrize("in_git", [False, True])
def test_the_state_of_iris_is_no_part_of_a_workspace(
    root: Path, in_git: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has keys, and files that disappear while they are packed. A state directory around the
    project takes nothing from it.
    """
    if in_git:
        git(root, "init", "-q")
    write(root, "main.py", "iris/clusters/local/cluster.json", "irises/main.py")
    write(root, ".irisignore", text="!iris/\n")
    monkeypatch.setenv("IRIS_STATE_DIR", str(root / "iris"))
    assert workspace_files(root) == [".irisignore", "irises/main.py", "main.py"]

    monkeypatch.setenv("IRIS_STATE_DIR", str(root.parent))
    assert "iris/clusters/local/cluster.json" in workspace_files(root)


@pytest.mark.parametrize("in_git", [False, True])
def test_irisignore_has_the_last_word(root: Path, in_git: bool) -> None:
    """It leaves out what git has, and takes in the built wheel that git must not have."""
    if in_git:
        git(root, "init", "-q")
    write(
        root,
        "main.py",
        "notes/big.md",
        "dist/app.whl",
        "dist/app.tar",
        "other.whl",
        "tests/test.py",
        "tests/data/one.json",
    )
    write(root, ".gitignore", text="dist/\n*.whl\n")
    write(root, ".irisignore", text="notes/\n!dist/*.whl\ntests/\n!tests/data/\n")
    assert workspace_files(root) == [
        ".gitignore",
        ".irisignore",
        "dist/app.whl",
        "main.py",
        "tests/data/one.json",
    ]


def test_irisignore_can_name_what_goes_along_instead_of_what_stays(root: Path) -> None:
    """`*` and exceptions: the shortest description of a small program in a large directory."""
    write(root, "main.py", "data/a", "lib/x.py", "lib/deep/y.py")
    write(root, ".irisignore", text="*\n!/main.py\n!lib/\n")
    assert workspace_files(root) == ["lib/deep/y.py", "lib/x.py", "main.py"]


@pytest.mark.parametrize("in_git", [False, True])
def test_git_itself_environments_and_caches_never_go_along(root: Path, in_git: bool) -> None:
    """They are of this machine, and large; no ignore file has to say so, and none can say
    otherwise.
    """
    if in_git:
        git(root, "init", "-q")
    write(
        root,
        "main.py",
        ".venv/bin/python",
        "lib/__pycache__/x.pyc",
        "lib/.venv/y",
        "other/.git/config",
        ".gitkeep",
    )
    write(root, ".irisignore", text="!.venv/\n!__pycache__/\n!.git/\n")
    assert workspace_files(root) == [".gitkeep", ".irisignore", "main.py"]


def test_only_the_files_below_the_directory_go_along(repository: Path) -> None:
    """One project of a large repository: its neighbours stay, the ignore files above it count."""
    write(repository, "one/main.py", "one/x.log", "two/main.py", "readme.md")
    write(repository, ".gitignore", text="*.log\n")
    assert workspace_files(repository / "one") == ["main.py"]


def test_submodules_and_repositories_within_go_along_with_their_files(
    tmp_path: Path, repository: Path
) -> None:
    """A program needs its vendored library; each repository's own ignore file counts for it."""
    library = tmp_path / "library"
    write(library, "lib.py")
    git(library, "init", "-q")
    git(library, "add", ".")
    git(library, "commit", "-qm", "one")
    git(repository, "submodule", "add", "-q", str(library), "vendor/lib")
    write(repository, "vendor/lib/new.py", "vendor/lib/x.log", "cloned/z.py")
    write(repository, "vendor/lib/.gitignore", text="*.log")
    git(repository / "cloned", "init", "-q")
    assert workspace_files(repository) == [
        *(
            ".gitmodules",
            "cloned/z.py",
            "vendor/lib/.gitignore",
            "vendor/lib/lib.py",
            "vendor/lib/new.py",
        )
    ]


def test_a_project_in_a_directory_that_git_ignores_goes_along_nevertheless(
    repository: Path,
) -> None:
    """Asking git there would give an empty workspace."""
    write(repository, ".gitignore", text="scratch/\n")
    write(repository, "scratch/main.py", "scratch/x.log")
    write(repository, "scratch/.gitignore", text="*.log\n")
    assert workspace_files(repository / "scratch") == [".gitignore", "main.py"]
    assert not is_project(repository / "scratch")


def test_a_repository_that_git_refuses_is_a_sentence_with_gits_words(root: Path) -> None:
    """Packing something else in silence would run the wrong program."""
    write(root, "main.py")
    write(root, ".git", text="gitdir: /nowhere/at/all\n")
    with pytest.raises(
        Rejected, match=r"git cannot list the files of .*not a git repository.*--no-workspace"
    ):
        pack(root)


def test_a_hook_of_git_packs_the_directory_it_names(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """While hooks run, git's own variables point elsewhere."""
    write(repository, "main.py")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    assert workspace_files(repository) == ["main.py"]


def test_without_git_the_rules_are_read_here(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A slim container has the checkout and no git."""
    write(repository, "main.py", "x.log")
    write(repository, ".gitignore", text="*.log\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert workspace_files(repository) == [".gitignore", "main.py"]


def test_a_line_of_irisignore_that_means_nothing_is_refused(root: Path) -> None:
    """It was meant to exclude something."""
    write(root, ".irisignore", text="!\n")
    with pytest.raises(Rejected, match=r"\.irisignore has an invalid line"):
        pack(root)


@pytest.mark.parametrize(
    "marker",
    [
        "pyproject.toml",
        ".irisignore",
        "requirements.txt",
        "setup.py",
        "setup.cfg",
        "environment.yml",
    ],
)
def test_a_directory_with_a_projects_file_is_a_project(root: Path, marker: str) -> None:
    """What decides whether a plain `iris submit` takes files along."""
    assert not is_project(root)
    write(root, marker)
    assert is_project(root)


def test_a_directory_in_a_git_work_tree_is_a_project(repository: Path) -> None:
    """At any depth."""
    (repository / "deep").mkdir()
    assert is_project(repository)
    assert is_project(repository / "deep")
    assert not is_project(repository / ".git")


# -- environments --------------------------------------------------------------------------------


@pytest.mark.parametrize("in_git", [False, True])
def test_an_environment_of_any_name_is_no_part_of_a_workspace(
    root: Path, in_git: bool, tmp_path: Path
) -> None:
    """It is of this machine, with links to its Python, which were refused as links that point
    outside.
    """
    if in_git:
        git(root, "init", "-q")
    write(root, "main.py", "envs/main.py", "docs/conda-meta", ".irisignore", text="!env/\n")
    for place in (root / "env", root / "tools/venv", tmp_path / "elsewhere"):
        venv.create(place, symlinks=True)
    write(root, "miniconda/bin/python", "miniconda/conda-meta/history")
    (root / "venv").symlink_to(tmp_path / "elsewhere")

    assert sorted(content(root)) == [".irisignore", "docs/conda-meta", "envs/main.py", "main.py"]


def test_an_environment_that_git_tracks_is_no_part_of_a_workspace(repository: Path) -> None:
    """Somebody has added everything; the copy of it would not run elsewhere."""
    write(repository, "main.py")
    venv.create(repository / "env", symlinks=True)
    git(repository, "add", "-f", ".")

    assert workspace_files(repository) == ["main.py"]


def test_a_workspace_that_is_an_environment_itself_says_so(root: Path) -> None:
    """After `python -m venv .`, the name of one of its links explains nothing."""
    write(root, "main.py")
    venv.create(root, symlinks=True)

    with pytest.raises(
        Rejected,
        match=(
            f"points outside .*: {root} itself is a Python environment; submit from a directory"
            " beside"
        ),
    ):
        pack(root)


# -- packing
# --------------------------------------------------------------------------------------------------


def test_the_same_files_have_the_same_hash_whoever_packs_them_and_whenever(
    tmp_path: Path, root: Path
) -> None:
    """Otherwise nothing is ever unchanged: order of making, times, group bits and the place do not
    count.
    """
    paths = [
        "b.py",
        "a/x.py",
        "a.py",
        "a-b/y.py",
        "long/" + "n" * 200 + "/" + "m" * 120,
        "ünï/cödé",
    ]
    other = tmp_path / "elsewhere" / "copy"
    write(root, *paths)
    write(other, *reversed(paths))
    os.utime(other / "b.py", (1, 1))
    (other / "a.py").chmod(0o664)
    with pack(root) as first, pack(other) as second:
        assert first.bundle == second.bundle
        assert first.bundle.sha256 == hashlib.sha256(second.archive.read()).hexdigest()
        assert first.bundle.size == os.fstat(first.archive.fileno()).st_size
        assert first.files == len(paths)
        with archive_of(first) as tar:
            assert {
                (each.uid, each.gid, each.uname, each.gname, each.mtime, each.mode) for each in tar
            } == {(0, 0, "", "", 0, 0o644)}
            assert set(tar.getnames()) == set(paths)


def test_content_a_name_and_whether_it_is_executable_make_another_bundle(root: Path) -> None:
    """What matters to the program matters to the hash."""
    seen = set()

    def is_new() -> bool:
        with pack(root) as packed:
            known = packed.bundle.sha256 in seen
            seen.add(packed.bundle.sha256)
            return not known

    write(root, "run.sh")
    assert is_new()
    write(root, "run.sh", text="y")
    assert is_new()
    (root / "run.sh").chmod(0o755)
    assert is_new()
    (root / "run.sh").rename(root / "go.sh")
    assert is_new()
    assert not is_new()
    with pack(root) as packed, archive_of(packed) as tar:
        assert tar.getmember("go.sh").mode == 0o755


def test_a_name_that_is_not_utf8_comes_through(root: Path) -> None:
    """Old data sets have them."""
    name = os.fsdecode(b"caf\xe9.txt")
    write(root, name)
    assert content(root) == {name: "x"}


def test_an_empty_workspace_can_be_packed(root: Path) -> None:
    """A program may need none of the files it was started from."""
    assert content(root) == {}


def test_links_that_stay_inside_are_kept_and_work_elsewhere(root: Path) -> None:
    """Also those written with this machine's path, which no other one has."""
    write(root, "data/a.txt")
    (root / "sub").mkdir()
    (root / "plain").symlink_to("data/a.txt")
    (root / "sub/up").symlink_to("../data")
    (root / "sub/absolute").symlink_to(root / "data/a.txt")
    (root / "sub/around").symlink_to("../../project/data")
    (root / "dangling").symlink_to("not/there")
    assert content(root) == {
        "data/a.txt": "x",
        "plain": "-> data/a.txt",
        "sub/up": "-> ../data",
        "sub/absolute": "-> ../data/a.txt",
        "sub/around": "-> ../data",
        "dangling": "-> not/there",
    }


def test_a_link_that_climbs_after_a_name_is_sent_with_the_place_it_means(root: Path) -> None:
    """Hosts refuse such a target: the name can be a link, from which the dots climb out of the
    directory.
    """
    write(root, "data/deep/a.txt", "b.txt")
    (root / "deep").symlink_to("data/deep")
    (root / "around").symlink_to("data/../b.txt")
    (root / "through").symlink_to("deep/../deep/a.txt")
    links = {name: text for name, text in content(root).items() if text.startswith("->")}

    assert links == {"deep": "-> data/deep", "around": "-> b.txt", "through": "-> data/deep/a.txt"}


def test_a_file_that_no_host_would_unpack_is_refused_before_anything_is_sent(root: Path) -> None:
    """The user reads it at once, not when the job has got its hosts."""
    write(root, "/".join(["d"] * 101))
    with pytest.raises(
        Rejected,
        match=r"is 101 levels deep; the limit is 100; rename it, or exclude it in \.irisignore",
    ):
        pack(root)


def test_a_link_that_leads_out_is_refused_by_name_unless_it_is_ignored(
    root: Path, tmp_path: Path
) -> None:
    """Directly, or through another link; the host has nothing there, or something else."""
    write(tmp_path, "outside/secret")
    for target in (tmp_path / "outside", Path("../outside/secret"), Path("/dev/null")):
        (root / "out").unlink(missing_ok=True)
        (root / "out").symlink_to(target)
        with pytest.raises(Rejected) as refused:
            pack(root)
        assert (
            f"the link out points outside the workspace, to {target}; exclude it in .irisignore"
            in str(refused.value)
        )
    write(root, ".irisignore", text="out\n")
    assert set(content(root)) == {".irisignore"}
    (tmp_path / "outside/back").symlink_to(root)
    (root / "round").symlink_to("../outside/back/.irisignore")
    with pytest.raises(Rejected, match="the link round points outside the workspace"):
        pack(root)


def test_what_lies_below_a_directory_that_became_a_link_is_left_to_the_link(
    repository: Path,
) -> None:
    """Git still tracks the files by their old paths; an archive with both could not be unpacked."""
    write(repository, "old/a.py", "new/a.py")
    git(repository, "add", "old")
    shutil.rmtree(repository / "old")
    (repository / "old").symlink_to("new")
    assert content(repository) == {"new/a.py": "x", "old": "-> new"}


def test_sockets_and_pipes_stay_behind(root: Path) -> None:
    """Reading a pipe would hang for ever."""
    write(root, "main.py")
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        directory = os.open(root, os.O_RDONLY)
        listening.bind(f"/proc/self/fd/{directory}/socket")
        os.close(directory)
    assert (root / "socket").is_socket()
    assert set(content(root)) == {"main.py"}


@pytest.fixture
def as_nobody() -> Iterator[Path]:
    """A directory of a user who is not root, whom permissions hold back; the test runs as that
    user.
    """
    directory = Path(tempfile.mkdtemp()).resolve()
    root = os.geteuid() == 0
    if root:
        os.chown(directory, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    yield directory
    if root:
        os.seteuid(0)
    shutil.rmtree(directory)


def test_a_file_or_directory_that_cannot_be_read_is_refused_by_name(as_nobody: Path) -> None:
    """Leaving it out would only show on the host."""
    write(as_nobody, "main.py", "key.pem")
    (as_nobody / "key.pem").chmod(0)
    with pytest.raises(
        Rejected, match=r"key\.pem cannot be read \(Permission denied\).*\.irisignore"
    ):
        pack(as_nobody)
    (as_nobody / "key.pem").unlink()
    (as_nobody / "closed").mkdir(mode=0)
    with pytest.raises(Rejected, match=r"closed cannot be read \(Permission denied\)"):
        pack(as_nobody)
    (as_nobody / "closed").chmod(0o755)


def test_files_that_are_written_meanwhile_do_not_break_the_archive(root: Path) -> None:
    """Logs grow and checkpoints are truncated while people submit; whatever was read, the archive
    is whole.
    """
    write(root, "main.py", "z.py")
    ended = threading.Event()

    def keep_writing() -> None:
        with (root / "log").open("wb", buffering=0) as log:
            while not ended.is_set():
                log.write(b"x" * 100_000)
                if log.tell() > 3_000_000:
                    log.seek(0)
                    log.truncate()

    writer = threading.Thread(target=keep_writing)
    writer.start()
    packed_often = 0
    try:
        for _ in range(20):
            try:
                with pack(root) as packed, archive_of(packed) as tar:
                    assert {"main.py", "z.py"} <= set(tar.getnames())
                    for member in tar.getmembers():
                        inside = tar.extractfile(member)
                        assert inside is not None
                        assert len(inside.read()) == member.size
                packed_often += 1
            except Rejected as refused:
                assert "log shrank while it was packed" in str(refused)  # noqa: PT017 either is fine
    finally:
        ended.set()
        writer.join()
    assert packed_often


def test_a_workspace_that_is_too_large_is_refused_with_its_ten_largest_files(root: Path) -> None:
    """So that its user knows at once what to put into .irisignore; holes in files make this test
    quick.
    """
    for number in range(12):
        write(root, f"data/{number:02}.bin")
        os.truncate(root / f"data/{number:02}.bin", (9 + number) * 1024 * 1024)
    write(root, "main.py")
    with pytest.raises(Rejected) as refused:
        pack(root)
    said = str(refused.value)
    assert said.startswith(f"workspace: {root} has 174 MiB in 13 files, which is ")
    assert ".irisignore" in said
    named = [line.split() for line in said.splitlines()[1:]]
    assert named == [
        [str(9 + number), "MiB", f"data/{number:02}.bin"] for number in range(11, 1, -1)
    ]


def test_many_small_files_that_are_too_large_together_are_named_by_their_directories(
    root: Path,
) -> None:
    """Ten of ten thousand tell nobody anything."""
    for number in range(300):
        write(root, f"cache/{number}.bin")
        os.truncate(root / f"cache/{number}.bin", 400_000)
    with pytest.raises(Rejected) as refused:
        pack(root)
    assert str(refused.value).endswith(
        "most of the size is in small files:\n   114.4 MiB  cache/ (300 files)"
    )


def test_a_workspace_that_just_fits_is_packed_and_one_byte_more_is_not(root: Path) -> None:
    """The bound is that of the archive, headers and all."""
    (root / "big").touch()
    os.truncate(root / "big", MAX_BUNDLE - 3 * 512)
    with pack(root) as packed:
        assert packed.bundle.size == MAX_BUNDLE
    os.truncate(root / "big", MAX_BUNDLE - 3 * 512 + 1)
    with pytest.raises(Rejected):
        pack(root)


# -- files beside it
# --------------------------------------------------------------------------------------------------


def test_a_named_file_goes_along_though_ignored_or_from_elsewhere(
    root: Path, tmp_path: Path
) -> None:
    """Without a destination it keeps its place in the workspace, or only its name."""
    write(root, "main.py", "secrets/token", ".venv/marker")
    write(root, ".irisignore", text="secrets/\n")
    write(tmp_path, "elsewhere/config.yaml", text="outside")
    extra = [root / "secrets/token", root / ".venv/marker", tmp_path / "elsewhere/config.yaml"]
    assert content(root, *map(ExtraFile, extra)) == {
        **{".irisignore": "secrets/\n", "main.py": "x"},
        **{"secrets/token": "x", ".venv/marker": "x", "config.yaml": "outside"},
    }


def test_a_destination_may_replace_a_file_of_the_workspace(root: Path, tmp_path: Path) -> None:
    """The production configuration in place of the one that is checked in."""
    write(root, "config.yaml", text="test")
    write(tmp_path, "production.yaml", text="production")
    assert content(root, ExtraFile(tmp_path / "production.yaml", "config.yaml")) == {
        "config.yaml": "production"
    }


def test_named_files_make_a_workspace_of_their_own(tmp_path: Path) -> None:
    """`--no-workspace --file train.py`."""
    write(tmp_path, "deep/train.py")
    assert content(
        None, ExtraFile(tmp_path / "deep/train.py"), ExtraFile(tmp_path / "deep/train.py", "a/b.py")
    ) == {
        "a/b.py": "x",
        "train.py": "x",
    }


def test_the_target_of_a_named_link_goes_along(root: Path, tmp_path: Path) -> None:
    """Who names a file means what is in it."""
    write(tmp_path, "real", text="content")
    (root / "link").symlink_to(tmp_path / "real")
    write(root, ".irisignore", text="link\n")
    assert content(root, ExtraFile(root / "link"))["link"] == "content"


def test_a_destination_that_is_taken_or_below_a_file_or_link_is_refused(
    root: Path, tmp_path: Path
) -> None:
    """An archive with both could not be unpacked, or would write through the link."""
    write(tmp_path, "a", "b")
    write(root, "file", "dir/x")
    (root / "link").symlink_to("dir")
    for dest, words in (
        ("file/a", "conflicts with file"),
        ("link/a", "conflicts with link"),
        ("dir", "conflicts with dir"),
    ):
        with pytest.raises(InvalidValue, match=words):
            pack(root, [ExtraFile(tmp_path / "a", dest)])
    with pytest.raises(InvalidValue, match="give each its own destination"):
        pack(root, [ExtraFile(tmp_path / "a", "c"), ExtraFile(tmp_path / "b", "c")])


@pytest.mark.parametrize(
    ("text", "dest"),
    [
        ("a.txt", None),
        ("a.txt:b.txt", "b.txt"),
        ("a.txt:in/", "in/a.txt"),
        ("a.txt:./x//y", "x/y"),
        ("c:d", None),
    ],
)
def test_a_file_option_is_a_path_and_perhaps_a_destination(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, dest: str | None
) -> None:
    """A colon may be part of a name that exists."""
    write(tmp_path, "a.txt", "c:d")
    monkeypatch.chdir(tmp_path)
    assert parse_extra(text) == ExtraFile(
        Path("c:d" if dest is None and ":" in text else "a.txt"), dest
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("none.txt", "is not a file"),
        ("none.txt:x", "is not a file"),
        ("", "is"),
        ("dir", "is a directory"),
        ("a.txt:/etc/x", "is not a path in a workspace"),
        ("a.txt:../x", "is not a path in a workspace"),
        ("a.txt:b/../../x", "is not a path in a workspace"),
        ("a.txt:", "is not a path in a workspace"),
        ("a.txt:.", "is not a path in a workspace"),
    ],
)
def test_a_file_option_that_is_wrong_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    """With the value and a remedy, before anything is packed."""
    write(tmp_path, "a.txt", "dir/x")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValue, match=words):
        parse_extra(text)


# -- sending
# --------------------------------------------------------------------------------------------------


async def test_a_workspace_is_sent_once_and_a_changed_one_again(root: Path, store: Store) -> None:
    """The second submission of the same files costs a look."""
    write(root, "main.py", text="print(1)\n" * 1000)
    told: list[tuple[int, int]] = []
    with pack(root) as packed:
        first = await upload(store, packed, lambda sent, total: told.append((sent, total)))
    before = objects(store)
    name = store_paths.bundle(first.sha256)
    assert set(before) == {name}
    assert told[0] == (0, before[name][1])
    assert told[-1] == (before[name][1], before[name][1])

    told.clear()
    with pack(root) as packed:
        assert await upload(store, packed, lambda sent, total: told.append((sent, total))) == first
    assert (objects(store), told) == (before, [])

    write(root, "main.py", text="print(2)\n")
    with pack(root) as packed:
        second = await upload(store, packed)
    assert set(objects(store)) == {name, store_paths.bundle(second.sha256)}


@pytest.mark.long
async def test_what_arrives_is_what_was_packed(root: Path, store: Store, tmp_path: Path) -> None:
    """Compressed on the way; the name is the hash of what is inside, and the same archive becomes
    the same object.
    """
    (root / "noise").write_bytes(os.urandom(12_000_000))
    with pack(root) as packed:
        bundle = await upload(store, packed, lambda sent, total: None)
        packed.archive.seek(0)
        archive = packed.archive.read()
        assert await store.get_file(store_paths.bundle(bundle.sha256), tmp_path / "fetched")
        assert gzip.decompress((tmp_path / "fetched").read_bytes()) == archive
        other = Store((tmp_path / "other").as_uri(), create=True)
        await upload(other, packed)
        assert (
            await other.get(store_paths.bundle(bundle.sha256))
            == (tmp_path / "fetched").read_bytes()
        )
    assert hashlib.sha256(archive).hexdigest() == bundle.sha256


async def test_a_store_that_does_not_take_it_is_named_with_a_remedy(
    root: Path, store: Store
) -> None:
    """In a sentence, without what its library prints for its developers."""
    write(root, "main.py")
    (Path(store.url.removeprefix("file://")) / "bundles").write_text("in the way")
    with pack(root) as packed, pytest.raises(IrisError) as refused:
        await upload(store, packed)
    said = str(refused.value)
    assert said.startswith(f"the store {store.url} does not accept the workspace: ")
    assert said.endswith("or submit with --no-workspace")
    assert "\n" not in said


async def test_an_object_is_fetched_whole_or_not_at_all(store: Store, tmp_path: Path) -> None:
    """Absence is an answer; a file that was there stays until the new one is complete."""
    target = tmp_path / "target"
    target.write_text("old")
    assert not await store.get_file("none", target)
    assert target.read_text() == "old"
    await store.put("some/object", b"new")
    assert await store.get_file("some/object", target)
    assert (target.read_text(), sorted(path.name for path in tmp_path.iterdir())) == (
        "new",
        ["store", "target"],
    )
    with pytest.raises(CannotWrite, match="No such file or directory"):
        await store.get_file("some/object", tmp_path / "no" / "directory")
