"""Where the dashboard of a configuration is, and the checks of its section."""

import re
from collections.abc import Iterator
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from iris.config.schema import ClusterConfig
from iris.model.errors import InvalidValue

#: The port that `dashboard_of` assumes for the Temporal service if it is given no other. The
#: default port of the dashboard is the port of the service plus 2.
SERVICE_PORT = 10000
#: Matches a host name, without a port. Source: RFC 1123, section 2.1
_HOST_NAME = re.compile(
    r"(?=.{1,253}$)[a-z0-9][a-z0-9-]{0,62}(\.[a-z0-9][a-z0-9-]{0,62})*", re.IGNORECASE
)
#: Matches the address of a server, without a path: the pages link to each other from the root. The
#: address goes into Markdown, so it has no characters that are markup there.
_URL = re.compile(r"https?://([a-z0-9.-]{1,253}|\[[0-9a-f:.]+\])(:[0-9]{1,5})?/?", re.IGNORECASE)


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


def dashboard_problems(config: ClusterConfig) -> Iterator[InvalidValue]:
    """Yields the errors of the section `dashboard`. The defaults must have been applied."""
    dashboard, controller = config.dashboard, config.controller
    if dashboard.allow_actions and not ip_address(dashboard.address).is_loopback:
        problem = f"is not possible at {dashboard.address}, which other machines reach"
        remedy = "remove it, or remove dashboard.address and use a tunnel: the pages have no logins"
        yield InvalidValue("dashboard.allow_actions", "true", problem, remedy)
    for name in dashboard.names:
        if not _HOST_NAME.fullmatch(name):
            yield InvalidValue(
                "dashboard.names", name, "is no host name", "write it without a port"
            )
    if dashboard.url and not _URL.fullmatch(dashboard.url):
        problem, remedy = "is no address of pages", "write https://NAME or http://NAME:PORT"
        yield InvalidValue("dashboard.url", dashboard.url, problem, remedy)
    machine = controller.gcp or controller.manual
    taken = {config.metrics.controller_port: "metrics.controller_port"}
    if machine is not None:
        taken |= {
            machine.port: f"controller.{controller.kind}.port",
            machine.port + 1: "the Web UI of Temporal",
        }
    if dashboard.port and dashboard.port in taken:
        problem = f"is the port of {taken[dashboard.port]}, too"
        yield InvalidValue("dashboard.port", str(dashboard.port), problem, "use another port")
