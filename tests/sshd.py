"""Real `sshd` processes that stand for machines: each has its own address, host key and home
directory.

`scripts/install-sshd` installs the program where it is missing.
"""

import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from iris.platforms.manual.settings import HostAccess

ROOT = Path(__file__).parent.parent
#: Debian's sshd wants to be started by its full path.
SSHD = "/usr/sbin/sshd"


class Machine:
    """One machine.

    Args:
        number: the last part of its loopback address.
        settings: further lines of its sshd_config.
        port: of its sshd; 0: any free one.
    """

    def __init__(
        self, directory: Path, number: int, user_key: Path, settings: str = "", port: int = 0
    ) -> None:
        self.directory = directory
        self.address = f"127.0.0.{number}"
        self.home = directory / "home"
        self.key = user_key
        self.settings = settings
        self.home.mkdir(parents=True)
        with socket.socket() as free:
            free.bind((self.address, port))
            self.port: int = free.getsockname()[1]
        self.new_host_key()
        (directory / "authorized_keys").write_text(user_key.with_suffix(".pub").read_text())
        self._process: subprocess.Popen[bytes] | None = None

    def new_host_key(self) -> None:
        """Gives the machine another host key, as a new installation does."""
        for path in self.directory.glob("host_key*"):
            path.unlink()
        make_key(self.directory / "host_key")

    @property
    def access(self) -> HostAccess:
        return HostAccess(address=self.address, user=user(), port=self.port, key_file=self.key)

    @property
    def known(self) -> str:
        """Its line in a file of known hosts."""
        return f"[{self.address}]:{self.port} {(self.directory / 'host_key.pub').read_text()}"

    def start(self) -> None:
        """Boots the machine."""
        config = self.directory / "sshd_config"
        python = Path(sys.executable).resolve().parent
        config.write_text(
            f"Port {self.port}\nListenAddress {self.address}\nHostKey"
            f" {self.directory / 'host_key'}\nPidFile none\nAuthorizedKeysFile"
            f" {self.directory / 'authorized_keys'}\nStrictModes no\nUsePAM no\nPermitRootLogin"
            " yes\nPasswordAuthentication yes\nMaxStartups 200\nLogLevel ERROR\nSetEnv"
            f" HOME={self.home} PATH={python}:/usr/local/bin:/usr/bin:/bin\n{self.settings}\n"
        )
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd separates privileges
        log = (self.directory / "sshd.log").open("ab")
        self._process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(config)], stdout=log, stderr=log, start_new_session=True
        )
        deadline = time.monotonic() + 60
        while True:
            with (
                contextlib.suppress(OSError),
                socket.create_connection((self.address, self.port), 1),
            ):
                return
            assert self._process.poll() is None, (self.directory / "sshd.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def stop(self) -> None:
        """Takes the machine off the network: ends sshd and all of its connections. What runs on the
        machine runs on.
        """
        if self._process is None:
            return
        # It must not accept another connection now: the process of that one would keep the port open.
        self._process.send_signal(signal.SIGSTOP)
        ending = self.sshd()
        for each in ending:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        self._process.wait()
        psutil.wait_procs(ending, timeout=60)
        self._process = None

    def sshd(self) -> list[psutil.Process]:
        """Returns the processes of its sshd: those of the connections first."""
        found = []
        with contextlib.suppress(psutil.NoSuchProcess):
            main = psutil.Process(self._process.pid if self._process is not None else 0)
            for each in (*main.children(recursive=True), main):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if each.name() == "sshd":
                        found.append(each)
        return found

    def processes(self) -> list[psutil.Process]:
        """Returns what runs on the machine, except for sshd. Shims have no environment, but their
        program lies in the home.
        """
        found = []
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                there = each.environ().get("HOME") == str(self.home) or "".join(
                    each.cmdline()[:1]
                ).startswith(f"{self.home}/")
                if there and each.name() != "sshd":
                    found.append(each)
        return found

    def power_off(self) -> None:
        """Ends everything that runs on the machine at once: no process sees another one's end."""
        self.stop()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for each in self.processes():
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.send_signal(number)

    def left(self) -> list[str]:
        """Returns what lies in the home directory."""
        return sorted(str(path.relative_to(self.home)) for path in self.home.rglob("*"))


@functools.cache
def user() -> str:
    """Returns the user of this process, as whom machines are entered."""
    return subprocess.run(["id", "-un"], capture_output=True, check=True, text=True).stdout.strip()


def make_key(path: Path, passphrase: str = "") -> Path:
    """Makes a key pair."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", path], check=True)
    return path


@contextlib.contextmanager
def an_agent(socket_path: Path) -> Iterator[Path]:
    """Runs an SSH agent without keys at a socket, and yields the path of the socket."""
    with subprocess.Popen(
        ["ssh-agent", "-D", "-a", socket_path], stdout=subprocess.DEVNULL
    ) as agent:
        deadline = time.monotonic() + 60
        while not socket_path.exists():
            assert agent.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        try:
            yield socket_path
        finally:
            agent.terminate()


@contextlib.contextmanager
def machines(
    directory: Path, count: int, first: int = 1, *, same_port: bool = False
) -> Iterator[list[Machine]]:
    """Runs machines, and writes `known_hosts` with their keys to the directory.

    Args:
        same_port: all have the port of the first one, as the machines of one scale group do.
    """
    directory.mkdir(parents=True, exist_ok=True)
    key = make_key(directory / "user_key")
    found = [Machine(directory / f"m{first}", first, key)]
    port = found[0].port if same_port else 0
    found += [
        Machine(directory / f"m{number}", number, key, port=port)
        for number in range(first + 1, first + count)
    ]
    try:
        for each in found:
            each.start()
        (directory / "known_hosts").write_text("".join(each.known for each in found))
        yield found
    finally:
        for each in found:
            each.power_off()


def install() -> None:
    """Makes sure that sshd is installed."""
    if not os.access(SSHD, os.X_OK) or shutil.which("ssh-keygen") is None:
        subprocess.run([ROOT / "scripts" / "install-sshd"], check=True)
