"""Where the dashboard of a configuration is."""

from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from iris.config.schema import ClusterConfig

#: The port of the Temporal service from which `dashboard_of` derives the default port of the
#: dashboard, which is higher by 2.
SERVICE_PORT = 10000


class DashboardAddress(NamedTuple):
    """The address at which a process serves the dashboard, and its settings."""

    #: The port; 0 if the process serves no dashboard.
    port: int = 0
    #: The IP address at which the process listens. Other machines can open the pages only if this
    #: is not a loopback address.
    address: str = "127.0.0.1"
    #: The host names that browsers may use for the dashboard, in addition to localhost and IP
    #: addresses.
    names: tuple[str, ...] = ()
    #: Whether users can change the cluster from the pages.
    allow_actions: bool = False
    #: The URL that users open, such as the URL of a proxy; empty if users open the process's own
    #: address.
    public_url: str = ""

    @property
    def url(self) -> str:
        """The address for browsers; empty if no dashboard is served."""
        if not self.port or self.public_url:
            return self.public_url if self.port else ""
        host = self.address
        if self.names and not ip_address(host).is_loopback:
            host = self.names[0]
        elif ip_address(host).is_unspecified:
            host = "127.0.0.1"
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def tunnel_port(self) -> int:
        """The port at 127.0.0.1 of the machine, to which a tunnel leads; 0 if there is none, or if
        people need no tunnel.
        """
        if self.public_url:
            return 0
        address = ip_address(self.address)
        return self.port if address.is_loopback or address.is_unspecified else 0


def dashboard_of(
    config: ClusterConfig | None, *, service: int = SERVICE_PORT, port: int | None = None
) -> DashboardAddress:
    """Returns where a control plane serves the dashboard.

    Args:
        config: the configuration of the cluster; None if there is none.
        service: the port of the Temporal service on the control plane's machine. The Web UI has the
            next port, and the dashboard the one after it, if the configuration has no other.
        port: the port that an option sets; None for that of the configuration.
    """
    after = service + 2 if service + 2 < 1 << 16 else service - 1
    if config is None:
        return DashboardAddress(after if port is None else port)
    section = config.dashboard
    if port is None:
        port = after if section.port is None else section.port
    url = section.url.rstrip("/")
    host = urlsplit(url).hostname
    names = section.names if host is None or host in section.names else (*section.names, host)
    return DashboardAddress(port, section.address, names, section.allow_actions, url)
