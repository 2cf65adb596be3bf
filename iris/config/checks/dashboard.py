"""Checks the section `dashboard` against the section `controller`."""

import re
from collections.abc import Iterator
from ipaddress import ip_address

from iris.config.schema import ClusterConfig
from iris.model.errors import InvalidValue

#: Matches a host name, without a port. Source: RFC 1123, section 2.1
_HOST_NAME = re.compile(
    r"(?=.{1,253}$)[a-z0-9][a-z0-9-]{0,62}(\.[a-z0-9][a-z0-9-]{0,62})*", re.IGNORECASE
)
#: Matches the address of a server, without a path: the pages link to each other from the root. The
#: address goes into Markdown, so it has no characters that are markup there.
_URL = re.compile(r"https?://([a-z0-9.-]{1,253}|\[[0-9a-f:.]+\])(:[0-9]{1,5})?/?", re.IGNORECASE)


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
