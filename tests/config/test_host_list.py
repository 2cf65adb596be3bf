"""Machines as users type them."""

import pytest

from iris.config.host_list import Login, parse_hosts
from iris.model.errors import InvalidValue


@pytest.mark.parametrize(
    ("texts", "logins"),
    [
        (["gpu1"], ["ada@gpu1:22"]),
        (["bob@gpu1:2222"], ["bob@gpu1:2222"]),
        (["gpu[1-3].lab"], ["ada@gpu1.lab:22", "ada@gpu2.lab:22", "ada@gpu3.lab:22"]),
        (["gpu[08-10]"], ["ada@gpu08:22", "ada@gpu09:22", "ada@gpu10:22"]),
        (["r[1-2]n[1,3]"], ["ada@r1n1:22", "ada@r1n3:22", "ada@r2n1:22", "ada@r2n3:22"]),
        (["10.0.0.[11-12]", "10.0.0.12"], ["ada@10.0.0.11:22", "ada@10.0.0.12:22"]),
    ],
)
def test_each_machine_is_named_once(texts: list[str], logins: list[str]) -> None:
    """A range is what the shell does not expand, and overlapping ranges are no mistake."""
    assert [
        f"{each.user}@{each.address}:{each.port}" for each in parse_hosts(texts, "ada")
    ] == logins


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (
            ["gpu[4-1]"],
            "has the range '4-1', which is not NUMBER or FIRST-LAST in ascending order; write a"
            " range such as",
        ),
        (["gpu[]"], "has the range ''"),
        (["gpu[1-"], "is not a machine; write [USER@]HOST[:PORT]"),
        (["gpu1:70000"], "is not a machine"),
        (["--fast"], "is not a machine"),
        (["a@b@gpu1"], "is not a machine"),
        (["gpu[1-99999]"], "makes more than 1000 machines"),
        (["gpu[1-999]x[1-999]"], "makes more than 1000 machines"),
        (["gpu1", "bob@gpu1"], "is listed as ada@gpu1:22 already; list each machine once"),
    ],
)
def test_a_mistake_is_named(texts: list[str], problem: str) -> None:
    """The mistake is found before Iris connects to any machine."""
    with pytest.raises(InvalidValue) as refused:
        parse_hosts(texts, "ada")
    assert problem in str(refused.value)


def test_a_machine_keeps_its_own_user() -> None:
    """The option is for the others."""
    assert parse_hosts(["bob@gpu1", "gpu2"], "ada") == (
        Login(address="gpu1", user="bob"),
        Login(address="gpu2", user="ada"),
    )
