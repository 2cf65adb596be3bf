"""A container image for tests, made of this machine's own files: no registry has to be there.

It has a shell, a few commands, and the python that runs the tests with its standard library.
`scripts/test-image` makes it, too.
"""

import fcntl
import hashlib
import io
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path

import pytest
from uv import find_uv_bin

#: The image's own, which a program must find in it: `PATH` is not the host's.
PATH = "/image/bin:/usr/bin:/bin"
ENV = {"PATH": PATH, "FLAVOUR": "vanilla"}
COMMANDS = (
    "sh",
    "cat",
    "dd",
    "echo",
    "env",
    "false",
    "head",
    "id",
    "ls",
    "mkdir",
    "rm",
    "sleep",
    "touch",
    "true",
)
#: Loaded by name while a program runs, or wanted by programs that a test brings along, such as uv.
LATE_LIBRARIES = (
    "libnss_files.so.2",
    "libnss_dns.so.2",
    "libresolv.so.2",
    "libgcc_s.so.1",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
)
FILES = ("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/ssl/certs/ca-certificates.crt")
#: Of the standard library; no program in a test wants it, and it is half of the size.
LEFT_OUT = re.compile(
    r"/(test|tests|idlelib|tkinter|turtledemo|lib2to3|site-packages|dist-packages|__pycache__|config-[^/]*)(/|$)"
)


def docker_image() -> str:
    """The name of the image, made if this machine has not got it yet; fails when there is no engine
    to make it in.
    """
    if subprocess.run(
        ["docker", "version"], capture_output=True, check=False, timeout=60
    ).returncode:
        pytest.fail(
            "no container engine answers: run scripts/start-docker as root, or leave these tests"
            " out with `make test`"
        )
    return make()


def make(*, small: bool = False) -> str:
    """The image of this very recipe and python; whoever else makes it meanwhile is waited for.

    Args:
        small: without python.
    """
    recipe = hashlib.sha256(
        Path(__file__).read_bytes() + f"{sys.version} {sys.base_prefix} {small}".encode()
    )
    name = f"iris-test:{recipe.hexdigest()[:12]}"
    with (Path(tempfile.gettempdir()) / "iris-test-image.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if subprocess.run(
            ["docker", "image", "inspect", name], capture_output=True, check=False
        ).returncode:
            _import(name, small)
    return name


def with_file(path: Path, place: str) -> str:
    """The name of the image with one more file, or another one in its place."""
    base = make(small=True)
    name = f"{base}-{hashlib.sha256(path.read_bytes() + place.encode()).hexdigest()[:12]}"
    if not subprocess.run(
        ["docker", "image", "inspect", name], capture_output=True, check=False
    ).returncode:
        return name
    made = subprocess.run(
        ["docker", "create", base, "true"], capture_output=True, text=True, check=True
    ).stdout.strip()
    try:
        subprocess.run(
            ["docker", "cp", str(path), f"{made}:{place}"], capture_output=True, check=True
        )
        subprocess.run(["docker", "commit", made, name], capture_output=True, check=True)
    finally:
        subprocess.run(["docker", "rm", made], capture_output=True, check=True)
    return name


def _import(name: str, small: bool) -> None:
    changes = [f"--change=ENV {key}={value}" for key, value in ENV.items()]
    importing = subprocess.Popen(
        ["docker", "import", *changes, "-", name], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert importing.stdin is not None
    with importing.stdin, tarfile.open(fileobj=importing.stdin, mode="w|") as image:
        _write(image, small)
    assert importing.wait() == 0, "the engine did not take the image"


def _write(image: tarfile.TarFile, small: bool) -> None:
    for directory in (
        "usr",
        "usr/bin",
        "usr/lib",
        "usr/lib64",
        "usr/sbin",
        "tmp",
        "root",
        "image",
        "image/bin",
        "etc",
        "proc",
    ):
        _entry(image, directory, tarfile.DIRTYPE, 0o1777 if directory == "tmp" else 0o755)
    for link in ("bin", "lib", "lib64", "sbin"):
        _entry(image, link, tarfile.SYMTYPE, to=f"usr/{link}")
    commands = {
        f"/usr/bin/{each}": Path(found).resolve()
        for each in COMMANDS
        if (found := shutil.which(each))
    }
    files = {**commands, **{each: Path(each) for each in FILES if Path(each).exists()}}
    binaries = list(commands.values())
    if not small:
        python = Path(
            sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}"
        ).resolve()
        library = Path(sysconfig.get_path("stdlib"))
        files |= {
            str(each): each
            for each in library.rglob("*")
            if not LEFT_OUT.search(str(each)) and not each.is_dir()
        }
        files[str(python)] = python
        # Which brings its own program, not its libraries.
        binaries += [
            python,
            *library.glob("lib-dynload/*.so"),
            Path(find_uv_bin()),
        ]
        _entry(image, "usr/bin/python3", tarfile.SYMTYPE, to=str(python))
    files |= {each: Path(each) for each in _libraries(binaries)}
    for name, path in files.items():
        image.add(
            path.resolve(), re.sub("^/(bin|lib|lib64|sbin)/", r"/usr/\1/", name), recursive=False
        )
    _entry(
        image, "image/bin/only-here", mode=0o755, content=b'#!/bin/sh\necho "here: $FLAVOUR $*"\n'
    )
    _entry(image, "image/no-program", mode=0o644, content=b"words\n")


def _libraries(binaries: list[Path]) -> set[str]:
    """Every library that one of them is linked with, and those that are loaded later."""
    said = subprocess.run(
        ["ldd", *map(str, binaries)], capture_output=True, text=True, check=False
    ).stdout
    found = set(re.findall(r"(?:=> |^\t)(/\S+) \(0x", said, re.MULTILINE))
    folders = {Path(each).parent for each in found}
    return found | {
        str(folder / name)
        for folder in folders
        for name in LATE_LIBRARIES
        if (folder / name).exists()
    }


def _entry(
    image: tarfile.TarFile,
    name: str,
    kind: bytes = tarfile.REGTYPE,
    mode: int = 0o777,
    to: str = "",
    content: bytes = b"",
) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname, entry.size = kind, mode, to, len(content)
    image.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    sys.stdout.write(f"{docker_image()}\n")
