"""Checks the sections `prices` and `teams`."""

from collections.abc import Iterator

from iris.config.accounting import RateConfig
from iris.config.schema import ClusterConfig
from iris.model import names
from iris.model.errors import InvalidValue

#: The keys of a rate that are prices.
UNITS = ("machine_hour", "chip_hour", "gpu_hour")


def accounting_problems(config: ClusterConfig) -> Iterator[InvalidValue]:
    """Yields the problems of the prices and of the teams.

    A machine that no group has is none: earlier groups may have had it.
    """
    yield from _teams(config)
    seen: dict[tuple[object, ...], int] = {}
    for index, rate in enumerate(config.prices.rates):
        path = f"prices.rates.{index}"
        yield from _rate(path, rate)
        key = (rate.machine, rate.group, rate.zone, rate.spot, rate.since)
        if key in seen:
            name = rate.machine or rate.group
            problem = f"has the same zone, spot and since in prices.rates.{seen[key]}"
            yield InvalidValue(path, name, problem, "remove one of them")
        seen.setdefault(key, index)


def _rate(path: str, rate: RateConfig) -> Iterator[InvalidValue]:
    if bool(rate.machine) == bool(rate.group):
        both = f"{rate.machine}, {rate.group}" if rate.machine else ""
        problem = "names a machine and a group" if rate.machine else "names no machine"
        remedy = "set either machine or group, such as machine: n2-standard-8"
        yield InvalidValue(path, both, problem, remedy)
    if not rate.model_fields_set.intersection(UNITS):
        remedy = f"set {', '.join(UNITS[:-1])} or {UNITS[-1]}"
        yield InvalidValue(path, rate.machine or rate.group, "has no price", remedy)


def _teams(config: ClusterConfig) -> Iterator[InvalidValue]:
    of: dict[str, str] = {}
    for team, users in config.teams.items():
        for user in users:
            path = f"teams.{team}"
            if not names.is_name(user):
                yield InvalidValue(path, user, "is not the name of a user", "write it as in jobs")
            elif user in of:
                problem = (
                    f"is in the team {of[user]}, too" if of[user] != team else "is there twice"
                )
                yield InvalidValue(path, user, problem, "list each user once")
            of.setdefault(user, team)
