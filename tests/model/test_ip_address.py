"""Addresses, and the `Host` header of requests."""

import pytest

from iris.model.ip_address import host_of


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("127.0.0.1:8080", "127.0.0.1"),
        ("LocalHost", "localhost"),
        ("[::1]:80", "::1"),
        ("evil.example", "evil.example"),
        ("x@127.0.0.1", ""),
        ("127.0.0.1:80:80", ""),
        ("", ""),
    ],
)
def test_a_host_header_names_a_host_or_is_malformed(header: str, host: str) -> None:
    """A server compares the name with its own. What one parser takes for 127.0.0.1 and a browser
    does not would let a page of another site in.
    """
    assert host_of(header) == host
