"""The settings of a cluster of machines that Iris reaches over SSH."""

from datetime import timedelta
from pathlib import Path

from iris.config import ClusterConfig, machine_groups, ssh_secret
from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen

#: The directory of Iris on a machine, in the home directory of the login user.
DIRECTORY = ".iris-host"


class HostAccess(Frozen):
    """The settings with which Iris logs in to one machine."""

    address: str
    user: str
    port: int = 22
    #: The file with the private key for the login; None to use the keys of the SSH agent and of
    #: ~/.ssh.
    key_file: Path | None = None
    #: The secret in Secret Manager that contains the private key; empty to use `key_file`.
    key_secret: str = ""
    #: `[USER@]HOST[:PORT]` of the machine through which Iris connects; empty for a direct
    #: connection.
    jump_host: str = ""

    def __str__(self) -> str:
        return self.address


class ManualSettings(Frozen):
    """The settings for the machines that one cluster reaches over SSH."""

    cluster: str
    #: The uid of the cluster, which distinguishes it from other clusters of the same name.
    uid: str
    #: The machines of each scale group, by the group's name. The preferred machine is first.
    hosts: dict[str, tuple[HostAccess, ...]]
    #: The addresses of the machines that get no new slices.
    retiring: frozenset[str] = frozenset()
    #: The zones of each scale group, by the group's name.
    zones: dict[str, tuple[str, ...]]
    connect_timeout: timedelta = timedelta(seconds=30)
    #: The pause between two visits of a machine that has a slice.
    poll_interval: timedelta = timedelta(seconds=5)
    known_hosts: Path = Path("~/.ssh/known_hosts")
    #: The secret in Secret Manager that contains the known hosts; empty to use the file
    #: `known_hosts`.
    known_hosts_secret: str = ""
    directory: str = DIRECTORY
    #: `host:port` at which the control plane reaches the Temporal service.
    address: str = ""
    namespace: str = "default"
    #: The text of the configuration, exactly as the user wrote it.
    config: str = ""

    @property
    def all_hosts(self) -> tuple[HostAccess, ...]:
        """All machines of all groups."""
        return tuple(host for hosts in self.hosts.values() for host in hosts)


def controller_access(config: ClusterConfig) -> HostAccess:
    """Returns how to log in to the machine of `controller.manual`.

    Raises:
        InvalidValue: the configuration has another control plane.
    """
    manual, ssh = config.controller.manual, config.defaults.ssh
    if manual is None:
        raise InvalidValue(
            "controller",
            config.controller.kind,
            "is not manual",
            "write controller: {manual: {host: …}}",
        )
    key = manual.ssh_key_file or ssh.key_file
    return HostAccess(
        address=manual.host,
        user=manual.ssh_user or ssh.user,
        port=manual.ssh_port or ssh.port,
        key_file=Path(key) if key else None,
        jump_host=manual.ssh_jump_host or ssh.jump_host,
    )


def manual_settings(
    config: ClusterConfig,
    uid: str,
    *,
    text: str = "",
    address: str = "",
    namespace: str = "default",
) -> ManualSettings:
    """Returns the settings of a cluster's machines.

    Args:
        text: the configuration, exactly as it is written.
        address: `host:port` of the Temporal service, as the control plane reaches it; empty: slices
            are only listed and deleted.
    """
    ssh = config.defaults.ssh
    groups = machine_groups(config)
    secrets = {name: ssh_secret(config, group.ssh_key_file) for name, group in groups.items()}
    hosts = {
        name: tuple(
            HostAccess(
                address=address,
                user=group.ssh_user,
                port=group.ssh_port,
                key_file=Path(group.ssh_key_file)
                if group.ssh_key_file and not secrets[name]
                else None,
                key_secret=secrets[name],
                jump_host=group.ssh_jump_host,
            )
            for address in group.hosts
        )
        for name, group in groups.items()
    }
    return ManualSettings(
        cluster=config.name,
        uid=uid,
        hosts=hosts,
        retiring=frozenset(
            address for group in groups.values() for address in group.retiring_hosts
        ),
        zones={name: group.zones for name, group in groups.items()},
        connect_timeout=ssh.connect_timeout,
        poll_interval=config.defaults.timeouts.ssh_poll_interval,
        known_hosts=Path(ssh.known_hosts),
        known_hosts_secret=ssh_secret(config, ssh.known_hosts),
        address=address,
        namespace=namespace,
        config=text,
    )


def jump_of(host: HostAccess) -> HostAccess:
    """Returns the machine through which the host is reached."""
    user, _, place = host.jump_host.rpartition("@")
    address, colon, port = place.rpartition(":")
    return HostAccess(
        address=address if colon else place,
        user=user or host.user,
        port=int(port) if colon else 22,
        key_file=host.key_file,
        key_secret=host.key_secret,
    )
