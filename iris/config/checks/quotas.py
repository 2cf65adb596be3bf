"""Checks the sections `quotas` and `limits`."""

from collections.abc import Iterator, Mapping

from iris.config.checks.values import raised_by
from iris.config.groups import amounts
from iris.config.quota_settings import QuotaAmounts, QuotaConfig
from iris.config.schema import ClusterConfig
from iris.model import names
from iris.model.errors import InvalidValue
from iris.model.job.spec import Band
from iris.model.job.tags import parse_tag
from iris.model.quotas import EACH_USER, RESOURCES


def quota_problems(config: ClusterConfig) -> Iterator[InvalidValue]:
    """Yields the problems of the quotas and of the named limits."""
    for name in config.limits:
        yield from raised_by(names.check_name, f"limits.{name}", name)
    for name, quota in config.quotas.items():
        path = f"quotas.{name}"
        yield from raised_by(names.check_name, path, name)
        yield from _holder(config, path, quota)
        yield from _amounts(config, path, quota)
        yield from _cohort(path, quota)
    yield from _overlaps(config.quotas)


def _holder(config: ClusterConfig, path: str, quota: QuotaConfig) -> Iterator[InvalidValue]:
    given = [each for each in (quota.user, quota.team, quota.tag) if each]
    if len(given) != 1:
        problem = "has several holders" if given else "has no holder"
        yield InvalidValue(path, ", ".join(given), problem, "set one of user, team and tag")
    if quota.user not in ("", EACH_USER) and not names.is_name(quota.user):
        remedy = f"write it as in jobs, or {EACH_USER} for each user"
        yield InvalidValue(f"{path}.user", quota.user, "is not the name of a user", remedy)
    if quota.team and quota.team not in config.teams:
        remedy = "add it to teams, or use one of them"
        yield InvalidValue(f"{path}.team", quota.team, "is not a team", remedy)
    if quota.tag:
        yield from raised_by(_check_tag, f"{path}.tag", quota.tag)


def _check_tag(field: str, text: str) -> None:
    key, value = parse_tag(text)
    if text != f"{key}={value}":
        raise InvalidValue(field, text, "has no value", "write KEY=VALUE")


def _amounts(config: ClusterConfig, path: str, quota: QuotaConfig) -> Iterator[InvalidValue]:
    nominal = amounts(quota)
    if not nominal and quota.waiting is None:
        remedy = f"set {', '.join(RESOURCES)}, limits or waiting"
        yield InvalidValue(path, quota.user or quota.team or quota.tag, "bounds nothing", remedy)
    if quota.tag and quota.waiting is not None:
        yield InvalidValue(
            f"{path}.waiting",
            quota.waiting,
            "is not possible for a tag",
            "set it for users or teams",
        )
    sections: dict[str, QuotaAmounts] = {"": quota, ".borrow": quota.borrow, ".lend": quota.lend}
    for key, section in sections.items():
        for name, amount in section.limits.items():
            if name not in config.limits:
                remedy = "add it to limits with the amount that the cluster has"
                yield InvalidValue(f"{path}{key}.limits.{name}", amount, "is not a limit", remedy)
        if not key:
            continue
        for resource, amount in amounts(section).items():
            where = f"{path}{key}.{resource}"
            if resource not in nominal:
                remedy = f"set {resource} of the quota, 0 to have none of its own"
                yield InvalidValue(where, amount, "is of a resource without a quota", remedy)
            elif key == ".lend" and amount > nominal[resource]:
                remedy = f"lend at most {nominal[resource]}"
                yield InvalidValue(where, amount, "is more than the quota has", remedy)


def _cohort(path: str, quota: QuotaConfig) -> Iterator[InvalidValue]:
    if not quota.cohort:
        for key, section in (("borrow", quota.borrow), ("lend", quota.lend)):
            if amounts(section):
                remedy = "set the cohort with which it shares, or remove it"
                yield InvalidValue(f"{path}.{key}", key, "is set without a cohort", remedy)
        return
    yield from raised_by(names.check_name, f"{path}.cohort", quota.cohort)
    if quota.user == EACH_USER:
        remedy = "remove the cohort, or write a quota for each team"
        yield InvalidValue(
            f"{path}.cohort", quota.cohort, "is not possible for a quota of each user", remedy
        )


def _overlaps(quotas: Mapping[str, QuotaConfig]) -> Iterator[InvalidValue]:
    """Yields quotas of one cohort that could count the same job: it would borrow from itself."""
    kinds: dict[str, tuple[str, str]] = {}
    held: dict[tuple[str, str, Band], str] = {}
    for name, quota in quotas.items():
        if not quota.cohort:
            continue
        kind, holder = _kind(quota)
        first, of_first = kinds.setdefault(quota.cohort, (name, kind))
        if kind != of_first:
            problem = f"has quotas of {of_first} ({first}) and of {kind}"
            remedy = "use cohorts of users, of teams or of one tag's values"
            yield InvalidValue(f"quotas.{name}.cohort", quota.cohort, problem, remedy)
        for band in quota.bands or tuple(Band):
            other = held.setdefault((quota.cohort, holder, band), name)
            if other != name:
                problem = f"has quota {other} of the same holder and band {band}"
                remedy = "use one of them, or different bands"
                yield InvalidValue(f"quotas.{name}.cohort", quota.cohort, problem, remedy)
                break


def _kind(quota: QuotaConfig) -> tuple[str, str]:
    """Returns the kind of the holder and the holder."""
    if quota.tag:
        return f"tag {quota.tag.partition('=')[0]}", quota.tag
    return ("teams", quota.team) if quota.team else ("users", quota.user)
