"""The sections `quotas` and `limits`: what they mean, and what is wrong with them."""

import pytest

from iris.config import InvalidConfig, load_config, quotas_of
from iris.model.errors import InvalidValue
from iris.model.quotas import parse_limit

_HEAD = """
name: lab
platform: {local: {}}
teams: {vision: [ada], speech: [cy]}
limits: {licence: 4}
quotas:
"""


def test_amounts_are_those_of_the_scheduler() -> None:
    """People write cores and sizes; the scheduler counts millicores and bytes."""
    text = "  vision: {team: vision, cpus: 1.5, memory: 2g, limits: {licence: 2}, cohort: all}"
    (rule,) = quotas_of(load_config(_HEAD + text)).quotas

    assert rule.nominal == {"cpus": 1500, "memory": 2 * 2**30, "limits.licence": 2}
    assert (rule.holder, rule.cohort, rule.bands) == ("team vision", "all", ())


def test_teams_count_only_if_one_has_a_quota() -> None:
    """They were there for `iris usage` before, and decide about turns now."""
    assert quotas_of(load_config(_HEAD + "  a: {user: ada, hosts: 1}")).teams == {}
    assert quotas_of(load_config(_HEAD + "  v: {team: vision, hosts: 1}")).teams == {
        "vision": ("ada",),
        "speech": ("cy",),
    }


@pytest.mark.parametrize(
    ("quota", "field", "told"),
    [
        ("v: {hosts: 1}", "quotas.v", "set one of user, team and tag"),
        ("v: {user: ada, team: vision, hosts: 1}", "quotas.v", "has several holders"),
        ("v: {team: wision, hosts: 1}", "quotas.v.team", "is not a team"),
        ("v: {team: vision}", "quotas.v", "bounds nothing"),
        ("v: {tag: project, hosts: 1}", "quotas.v.tag", "write KEY=VALUE"),
        ("v: {tag: a=b, waiting: 1}", "quotas.v.waiting", "is not possible for a tag"),
        ("v: {team: vision, limits: {x: 1}}", "quotas.v.limits.x", "is not a limit"),
        ("v: {team: vision, hosts: 1, lend: {hosts: 1}}", "quotas.v.lend", "without a cohort"),
        (
            "v: {team: vision, hosts: 1, cohort: a, borrow: {chips: 1}}",
            "quotas.v.borrow.chips",
            "without a quota",
        ),
        (
            "v: {team: vision, hosts: 1, cohort: a, lend: {hosts: 2}}",
            "quotas.v.lend.hosts",
            "lend at most 1",
        ),
        ('v: {user: "*", hosts: 1, cohort: a}', "quotas.v.cohort", "of each user"),
        (
            "v: {team: vision, hosts: 1, cohort: a}\n  a: {user: ada, hosts: 1, cohort: a}",
            "quotas.a.cohort",
            "has quotas of teams (v) and of users",
        ),
        (
            "v: {team: vision, hosts: 1, cohort: a}\n  w: {team: vision, cpus: 1, cohort: a}",
            "quotas.w.cohort",
            "has quota v of the same holder",
        ),
    ],
)
def test_a_mistake_is_told_with_its_field_and_the_remedy(quota: str, field: str, told: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        load_config(f"{_HEAD}  {quota}")

    (problem,) = raised.value.problems
    assert f"{field}: " in problem
    assert told in problem


@pytest.mark.parametrize(
    ("text", "found"), [("licence", ("licence", 1)), ("licence=3", ("licence", 3))]
)
def test_a_job_takes_one_of_a_limit_unless_it_says_how_much(
    text: str, found: tuple[str, int]
) -> None:
    assert parse_limit(text) == found


@pytest.mark.parametrize("text", ["licence=", "licence=x", "=1", "licence=-1", "a b=1"])
def test_a_limit_without_a_name_or_an_amount_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue):
        parse_limit(text)
