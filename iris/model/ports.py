"""Names of the ports that a task gets."""

import re

from iris.model import names
from iris.model.errors import InvalidValue


def check_ports(ports: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the names.

    Raises:
        InvalidValue: one is not valid, or two would have the same environment variable.
    """
    for port in ports:
        if re.fullmatch("[a-zA-Z][a-zA-Z0-9_-]{0,30}", port) is None:
            raise InvalidValue("port", port, "is not a valid name of a port", "use letters, digits, - or _, such as metrics")
    if len({names.env_port(port) for port in ports}) < len(ports):
        raise InvalidValue("port", ", ".join(ports), "names the same port twice", "give each port a name of its own")
    return ports
