"""The section `dashboard`: where the pages are, and what it refuses."""

import pytest

from iris.config import (
    DashboardAddress,
    InvalidConfig,
    dashboard_of,
    load_config,
    local_config,
    make_local_config,
    with_actions,
)

CLOUD = """
name: euw4
platform: {{gcp: {{project_id: my-project, default_zones: [europe-west4-b]}}}}
controller: {{image: controller:1, bundle_prefix: "gs://mine", gcp: {{port: 10000}}}}
defaults: {{bootstrap: {{image: agent:1}}}}
scale_groups: {{v5e: {{type: tpu_vm, accelerator_variant: v5litepod-16}}}}
metrics: {{controller_port: 9464}}
dashboard: {{{section}}}
"""


def cloud(section: str = "") -> str:
    return CLOUD.format(section=section)


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("allow_actions: true, address: 10.0.0.5", "dashboard.allow_actions"),
        ("allow_actions: true, address: 0.0.0.0", "dashboard.allow_actions"),
        ("allow_actions: true, address: '::'", "dashboard.allow_actions"),
        ("port: 10000", "dashboard.port"),
        ("port: 10001", "dashboard.port"),
        ("port: 9464", "dashboard.port"),
        ("port: 65536", "dashboard.port"),
        ("address: iris.example", "dashboard.address"),
        ("names: ['iris.example:80']", "dashboard.names"),
        ("names: ['*']", "dashboard.names"),
        ("names: ['']", "dashboard.names"),
        ("url: iris.example", "dashboard.url"),
        ("url: 'javascript:alert(1)'", "dashboard.url"),
        ("url: 'https://iris.example/iris'", "dashboard.url"),
        ("url: 'https://a) [b](https://evil.example'", "dashboard.url"),
    ],
)
def test_what_cannot_be_served_is_refused_with_its_key(section: str, key: str) -> None:
    """Above all actions without logins where others reach them."""
    with pytest.raises(InvalidConfig) as refused:
        load_config(cloud(section))

    assert key in str(refused.value)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "::1"])
def test_actions_are_allowed_at_a_loopback_address(address: str) -> None:
    config = load_config(cloud(f"allow_actions: true, address: '{address}'"))
    assert dashboard_of(config).allow_actions


def test_a_machine_of_its_own_has_the_pages_after_the_web_ui() -> None:
    """Unless the configuration has another port. The last port of all has none after it."""
    config = load_config(cloud())

    assert dashboard_of(config, service=10000).port == 10002
    assert dashboard_of(config, service=65534).port == 65533
    assert dashboard_of(load_config(cloud("port: 8080")), service=10000).port == 8080
    assert dashboard_of(load_config(cloud("port: 0")), service=10000).url == ""
    assert dashboard_of(config, port=7000).port == 7000
    assert dashboard_of(None).url == "http://127.0.0.1:10002"


@pytest.mark.parametrize(
    ("listen", "url", "tunnel"),
    [
        (DashboardAddress(80), "http://127.0.0.1:80", 80),
        (DashboardAddress(80, "::1"), "http://[::1]:80", 80),
        (DashboardAddress(80, "127.0.0.1", ("iris.example",)), "http://127.0.0.1:80", 80),
        (DashboardAddress(80, "10.0.0.5"), "http://10.0.0.5:80", 0),
        (DashboardAddress(80, "10.0.0.5", ("iris.example",)), "http://iris.example:80", 0),
        (DashboardAddress(80, "0.0.0.0"), "http://127.0.0.1:80", 80),
        (DashboardAddress(80, "0.0.0.0", ("iris.example",)), "http://iris.example:80", 80),
        (DashboardAddress(0), "", 0),
    ],
)
def test_browsers_and_tunnels_learn_where_the_pages_are(
    listen: DashboardAddress, url: str, tunnel: int
) -> None:
    """A tunnel ends at 127.0.0.1 of the machine, so it leads to the pages only if they are there."""
    assert (listen.url, listen.tunnel_port) == (url, tunnel)


def test_the_address_that_people_use_replaces_the_pages_own() -> None:
    """Behind a proxy nobody needs a tunnel, and the proxy passes the name on with each request."""
    listen = dashboard_of(load_config(cloud("url: 'https://iris.example.com/'")))

    assert (listen.url, listen.tunnel_port) == ("https://iris.example.com", 0)
    assert (listen.address, listen.port) == ("127.0.0.1", 10002)
    assert listen.names == ("iris.example.com",)
    assert dashboard_of(load_config(cloud("url: 'https://iris.example', port: 0"))).url == ""


def test_a_simulated_cluster_publishes_no_pages() -> None:
    """Its control plane is a process on a laptop."""
    local = make_local_config(load_config(cloud("address: 10.0.0.5, url: 'https://iris.example'")))

    assert dashboard_of(local, port=80).url == "http://127.0.0.1:80"
    assert local.dashboard.port is None


def test_an_option_allows_actions_in_a_local_cluster() -> None:
    assert dashboard_of(with_actions(local_config("x"))).allow_actions
    assert not dashboard_of(local_config("x")).allow_actions
