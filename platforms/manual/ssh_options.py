"""How the system's own ssh logs in to a machine as Iris does: the options of a command line, or of
a configuration file. Pure.
"""

import re
import shlex
from collections.abc import Sequence

from iris.platforms.manual.settings import HostAccess, ManualSettings, jump_of

_PLAIN = re.compile(r"[\w./~%@:+,-]*")


def ssh_options(host: HostAccess, settings: ManualSettings) -> dict[str, str]:
    """Returns the options by their keywords in `ssh_config`, without the address.

    If the cluster's key or known hosts are secrets in a cloud, they are for its control plane: ssh
    uses the user's own.
    """
    options = {"User": host.user, "Port": str(host.port)}
    if not settings.known_hosts_secret:
        options["UserKnownHostsFile"] = _path(str(settings.known_hosts))
    if host.key_file is not None:
        options |= {"IdentityFile": _path(str(host.key_file)), "IdentitiesOnly": "yes"}
    if host.jump_host:
        # Not ProxyJump, which would use neither the key nor the known hosts.
        gateway = jump_of(host)
        through = [
            "ssh",
            "-W",
            "[%h]:%p",
            *_words(ssh_options(gateway, settings)),
            "--",
            gateway.address,
        ]
        options["ProxyCommand"] = " ".join(
            each if each == "[%h]:%p" else shlex.quote(each).replace("%", "%%") for each in through
        )
    return options


def ssh_command(
    host: HostAccess,
    settings: ManualSettings,
    command: Sequence[str] = (),
    *,
    terminal: bool = False,
) -> list[str]:
    """Returns the command line of ssh.

    Args:
        command: what runs there instead of the login shell. One word is a line for that shell,
            several are a program with its arguments.
        terminal: the command gets a terminal.
    """
    line = command[0] if len(command) == 1 else shlex.join(command)
    timeout = f"ConnectTimeout={max(1, int(settings.connect_timeout.total_seconds()))}"
    words = [
        "ssh",
        "-o",
        timeout,
        *_words(ssh_options(host, settings)),
        *(["-t"] if terminal else []),
        "--",
        host.address,
    ]
    return [*words, line] if line else words


def ssh_config(settings: ManualSettings) -> str:
    """Returns an entry of `ssh_config` for each machine of the cluster."""
    entries = (
        "\n".join(
            [
                f"Host {host.address}",
                *(f"    {key} {value}" for key, value in ssh_options(host, settings).items()),
            ]
        )
        for host in settings.all_hosts
    )
    return "\n\n".join(
        [f"# Machines of cluster {settings.cluster}, written by iris ssh-config", *entries, ""]
    )


def _words(options: dict[str, str]) -> list[str]:
    return [word for key, value in options.items() for word in ("-o", f"{key}={value}")]


def _path(path: str) -> str:
    """Returns a path as ssh reads it: % begins a token, and some characters need quotes. `SshFile`
    refuses double quotes.
    """
    path = path.replace("%", "%%")
    return path if _PLAIN.fullmatch(path) else f'"{path}"'
