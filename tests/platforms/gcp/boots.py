"""A machine that boots with a startup script: its own root directory, only the commands of Google's
machines, and a `docker` that only records its calls.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from iris.platforms.gcp.settings import GcpSettings

#: What the script may count on. Whatever else it called would be missing.
TOOLS = (
    "apt-get",
    "base64",
    "bash",
    "cat",
    "chmod",
    "chown",
    "curl",
    "cut",
    "id",
    "mkdir",
    "mv",
    "sed",
    "sha256sum",
    "sleep",
    "timeout",
)
#: The devices of a host of four TPU chips.
CHIPS = ("dev/vfio/0", "dev/vfio/1", "dev/vfio/2", "dev/vfio/3", "dev/vfio/vfio")
#: Programs of its own, beside or instead of these.
_OWN = {
    "apt-get": (
        'echo "$*" >> "$SHIM/installed"; countdown apt-fails || exit 100; case " $* " in *"'
        ' docker.io "*) ln -s "$SHIM/docker" "$SHIM/bin/docker";; esac'
    ),
    "nvidia-smi": "countdown driver-missing",
    "sleep": (
        'later=$(sed 1q "$SHIM/later" 2> /dev/null) && [ -n "$later" ] && sed -i 1d "$SHIM/later"'
        ' && echo > "$later"; true'
    ),
    "curl": f'echo "$*" >> "$SHIM/curled"; exec {shutil.which("curl")} "$@"',
    "chown": 'echo "$*" >> "$SHIM/chowned"',
}
_COUNTDOWN = """#!/bin/bash
# Fails so many times as the file says.
countdown() {
    local left
    left=$(cat "$SHIM/$1" 2> /dev/null) || return 0
    if [ "$left" -gt 0 ]; then echo $((left - 1)) > "$SHIM/$1"; return 1; fi
}
"""
_DOCKER = (
    _COUNTDOWN
    + r"""
restarts() {
    local looks
    looks=$(cat "$SHIM/crash-loop" 2> /dev/null) || exec cat "$SHIM/restarts"
    echo $((looks + 1)) > "$SHIM/crash-loop"
    echo $(((looks + 1) / $(cat "$SHIM/looks-to-crash")))
}
number=$(cat "$SHIM/number" 2> /dev/null || echo 100)
echo $((number + 1)) > "$SHIM/number"
printf '%s\0' "$@" > "$SHIM/calls/$number"
case "$1" in
    info) countdown engine-down ;;
    login) cat > "$SHIM/password" ;;
    pull) if countdown pull-fails; then echo "$2" > "$SHIM/image"; else echo "no such manifest" >&2; exit 1; fi ;;
    image) cat "$SHIM/image" 2> /dev/null ;;
    inspect) case "$*" in *RestartCount*) restarts ;; *) cat "$SHIM/containers/${!#}" ;; esac ;;
    logs) echo "cannot reach the cluster" ;;
    rm) rm -f "$SHIM/containers/$3" ;;
    run)
        for each in "$@"; do case $each in --label=iris.build=*) build=${each##*=} ;; esac; done
        echo "$build" > "$SHIM/containers/$4"
        ;;
esac
"""
)


class Console(NamedTuple):
    """How a boot ended, and what stands on the machine's serial console."""

    code: int
    text: str


class Machine:
    """One machine of Google's.

    Args:
        home: a new directory.
        metadata: `host:port` of its metadata server.
        docker: whether it comes with docker.
        chips: its devices, by their paths.
        secrets: the URL of its Secret Manager.
    """

    def __init__(
        self,
        home: Path,
        metadata: str,
        *,
        docker: bool = True,
        chips: Sequence[str] = CHIPS,
        secrets: str = "http://127.0.0.1:1",
    ) -> None:
        self._secrets = secrets
        self._shim, self._metadata = home / "shim", metadata
        self.root = home / "root"
        for directory in (
            self.root,
            self._shim / "bin",
            self._shim / "calls",
            self._shim / "containers",
        ):
            directory.mkdir(parents=True)
        for name in TOOLS:
            found = shutil.which(name)
            assert found or name in _OWN, f"there is no {name} here"
            if name not in _OWN:
                (self._shim / "bin" / name).symlink_to(str(found))
        # What the shims call.
        for name in ("ln", "rm"):
            (self._shim / "bin" / name).symlink_to(str(shutil.which(name)))
        for name, body in _OWN.items():
            self._program(self._shim / "bin" / name, f"{_COUNTDOWN}{body}\n")
        self._program(self._shim / "docker", _DOCKER)
        if docker:
            (self._shim / "bin" / "docker").symlink_to(self._shim / "docker")
        self.has(*chips)

    @staticmethod
    def _program(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def has(self, *paths: str) -> None:
        """Files below its root."""
        for path in paths:
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).touch()

    def comes_later(self, *paths: str) -> None:
        """The same, one at a time, whenever the script waits."""
        (self._shim / "later").write_text("".join(f"{self.root / path}\n" for path in paths))

    def knob(self, name: str, value: object) -> None:
        """`engine-down`, `pull-fails`, `apt-fails`, `driver-missing`: so many times; `restarts`: of
        the container; `crash-loop` (0): it has one more after every `looks-to-crash`.
        """
        (self._shim / name).write_text(f"{value}\n")

    def boot(self, script: str, tries: int = 20) -> Console:
        """Run it as Google's agent does: as a file, with hardly any environment."""
        file = self._shim / "startup-script"
        self._program(file, script)
        ran = subprocess.run(
            [file],
            env={
                "PATH": str(self._shim / "bin"),
                "SHIM": str(self._shim),
                "IRIS_ROOT": str(self.root),
                "IRIS_TRIES": str(tries),
                "IRIS_PAUSE": "0",
                "IRIS_CHECK_INTERVAL": "0",
                "GCE_METADATA_HOST": self._metadata,
                "IRIS_SECRET_MANAGER": self._secrets,
                "LANG": os.environ.get("LANG", "C"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
        return Console(ran.returncode, ran.stdout.decode(errors="replace"))

    def calls(self, verb: str) -> list[list[str]]:
        """The words of every call of docker with this verb, in order."""
        said = [
            path.read_bytes().decode().split("\0")[:-1]
            for path in sorted((self._shim / "calls").iterdir())
        ]
        return [words for words in said if words[0] == verb]

    @property
    def container(self) -> list[str]:
        """The words of the one call that started a container."""
        (words,) = self.calls("run")
        return words

    @property
    def config(self) -> bytes:
        return (self.root / "etc/iris/config.yaml").read_bytes()

    def said(self, name: str) -> str:
        """What a shim has written down: `password`, `installed`, `chowned`, `curled`."""
        path = self._shim / name
        return path.read_text() if path.exists() else ""


def some_settings(**changes: object) -> GcpSettings:
    """Of a cluster of which only what the test says matters."""
    settings = {
        "project": "my-project",
        "cluster": "dev",
        "uid": "u0123456789",
        "label_prefix": "iris",
        "network": "default",
        "address": "controller.internal:10000",
        "image": "example.com/iris-agent:1",
        "config": "name: dev\n",
    }
    return GcpSettings.model_validate(settings | changes)
