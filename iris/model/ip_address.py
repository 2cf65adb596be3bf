"""Parses addresses of network interfaces of a machine, and the `Host` header of a request."""

import re
from ipaddress import ip_address

from iris.model.errors import InvalidValue

#: Matches a `Host` header: a name, or an address in brackets, with or without a port.
_HOST = re.compile(
    r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::[0-9]{1,5})?", re.IGNORECASE
)


def parse_ip(text: str, field: str = "address") -> str:
    """Returns the IP address in its usual form.

    Raises:
        InvalidValue: the text is not an IP address.
    """
    try:
        return str(ip_address(text))
    except ValueError:
        raise InvalidValue(
            field, text, "is not an IP address", "use 127.0.0.1, or 0.0.0.0 for all addresses"
        ) from None


def is_loopback(address: str) -> bool:
    """Returns whether the address, `host:port`, is one of this machine."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_of(header: str) -> str:
    """Returns the name or the IP address in a `Host` header, in lower case and without the port;
    empty if the header is malformed.

    A server compares it with the names that are its own. A page of another site can reach a server
    on the machine of its reader under the name of that site, if the name resolves to the machine
    (DNS rebinding). The port may be any, because a tunnel may have another port there.
    """
    found = _HOST.fullmatch(header)
    return (found["v6"] or found["name"]).lower() if found else ""
