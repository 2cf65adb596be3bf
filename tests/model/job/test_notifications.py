"""The addresses that are called when a job has ended: which a job may have, and which machines are
never called.
"""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from iris.model.errors import InvalidValue
from iris.model.job.notifications import MAX_NOTIFY, parse_webhook, refusal, shown_webhook
from tests.builders import a_spec

OWN = frozenset({"10.0.0.2", "2001:db8::2"})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("./tell-me.sh", "iris wait JOB; COMMAND"),
        ("ftp://files.example/x", "not an HTTP address"),
        ("https://", "has no host"),
        ("https://a b.example/", "has no host, or characters"),
        ("https://größe.example/", "name of the host in ASCII"),
        ("https://a.example/x\r\nHost: b", "has no host, or characters"),
        ("https://ada:secret@a.example/", "put a token into the path"),
        ("https://a.example:notaport/", "not a valid address"),
        ("https://a.example/" + "x" * 2_000, "has 2,018 characters"),
    ],
)
def test_what_is_no_address_of_a_webhook_is_refused_with_the_remedy(
    text: str, problem: str
) -> None:
    """A wrong address would be noticed only when the job has ended."""
    with pytest.raises(InvalidValue, match=r"^notify: ") as refused:
        parse_webhook(text)
    assert problem in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_job_has_each_address_once_and_only_a_few() -> None:
    """Repeated messages are useless, and a job must not be able to call thousands of machines."""
    url = "https://a.example/hook"
    assert a_spec(notify=(url, url)).notify == (url,)
    with pytest.raises(ValidationError, match="are too many"):
        a_spec(notify=tuple(f"{url}/{number}" for number in range(MAX_NOTIFY + 1)))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://chat.example/services/SECRET", "https://chat.example/…"),
        ("https://chat.example/?token=SECRET", "https://chat.example/…"),
        ("http://ci.lab:8080/", "http://ci.lab:8080"),
    ],
)
def test_the_secret_of_an_address_is_not_shown(url: str, shown: str) -> None:
    """Whoever knows the path of a chat service's webhook can write there."""
    assert shown_webhook(url) == shown


@pytest.mark.parametrize(
    "address",
    [
        *(
            "169.254.169.254",
            "fe80::1",
            "fe80::1%eth0",
            "fd00:ec2::254",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
        ),
        *(
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "::ffff:192.0.0.192",
            "64:ff9b::c000:c0",
        ),
        # Teredo: a server, and a client whose address is inverted.
        *("2001:0:a9fe:a9fe::", "2001:0:5db8:d822:0:0:5601:5601", "2001:0:c000:c0::"),
        *("224.0.0.1", "ff02::1", "255.255.255.255"),
    ],
)
def test_no_machine_that_gives_out_credentials_is_called(address: str) -> None:
    """A user must not get the control plane's credentials by a webhook, in whatever notation."""
    assert refusal(address, OWN, local=True)
    assert refusal(address, OWN, local=False)


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "127.8.9.1", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1", *sorted(OWN)]
)
def test_the_control_planes_own_machine_is_called_only_in_a_local_cluster(address: str) -> None:
    """What listens there trusts its machine. In a local cluster, the user's own programs do."""
    assert refusal(address, OWN, local=False)
    assert not refusal(address, OWN, local=True)


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822", "2002:5db8:d822::1"]
)
@pytest.mark.parametrize("local", [True, False])
def test_machines_of_the_internet_are_called(address: str, local: bool) -> None:
    """In each notation."""
    assert not refusal(address, OWN, local=local)


@pytest.mark.parametrize(
    "address", ["10.1.2.3", "172.31.0.1", "192.168.1.9", "fd12:3456::9", "::ffff:10.1.2.3"]
)
def test_a_private_network_is_called_only_in_a_local_cluster(address: str) -> None:
    """A control plane is often in a network that users and their jobs are not in. A job calls what
    it can reach itself.
    """
    assert "is not a public address; a job can call it" in refusal(address, OWN, local=False)
    assert not refusal(address, OWN, local=True)


@pytest.mark.parametrize(
    "address",
    [
        *(
            "100.64.0.1",
            "192.0.0.1",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "198.18.0.1",
            "203.0.113.9",
            "240.0.0.1",
        ),
        *(
            "2001:db8::1",
            "3fff::1",
            "5f00::1",
            "64:ff9b:1::1",
            "fec0::1",
            "100::1",
            "::10.0.0.1",
            "2001:2::1",
        ),
        *("2001:0:5db8:d822:0:0:a247:27dd", "2002:6440:1::1"),
    ],
)
def test_what_is_no_public_address_is_not_called(address: str) -> None:
    """Providers have services at special addresses. Also those count that an older Python takes for
    public.
    """
    assert refusal(address, OWN, local=True)
    assert refusal(address, OWN, local=False)


@given(st.ip_addresses())
def test_only_what_the_library_calls_global_is_called(address: IPv4Address | IPv6Address) -> None:
    """Of each address that stands for others, these count."""
    if not refusal(str(address), frozenset(), local=False) and (
        isinstance(address, IPv4Address) or address.sixtofour is None
    ):
        assert address.is_global or (
            isinstance(address, IPv6Address) and address.ipv4_mapped is not None
        )


@given(
    st.one_of(
        *(
            st.ip_addresses(network=network)
            for network in (
                "127.0.0.0/8",
                "169.254.0.0/16",
                "10.0.0.0/8",
                "192.0.0.0/24",
                "100.64.0.0/10",
            )
        )
    )
)
def test_no_notation_of_a_forbidden_address_is_called(forbidden: IPv4Address) -> None:
    """The same machine has many addresses in IPv6."""
    number = int(forbidden)
    notations = [
        str(forbidden),
        str(IPv6Address((0xFFFF << 32) | number)),
        str(IPv6Address((0x64FF9B << 96) | number)),
        str(IPv6Address((0x2002 << 112) | (number << 80) | 1)),
        str(IPv6Address((0x20010000 << 96) | (number << 64))),
        str(IPv6Address((0x20010000 << 96) | (0x5DB8D822 << 64) | (number ^ 0xFFFFFFFF))),
    ]
    assert all(refusal(each, OWN, local=False) for each in notations)
