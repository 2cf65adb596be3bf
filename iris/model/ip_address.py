"""Parses addresses of network interfaces of a machine."""

from ipaddress import ip_address

from iris.model.errors import InvalidValue


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
