"""Checks the sections `prices`, `teams` and `budgets`."""

from collections.abc import Iterator

from iris.config.accounting import BudgetConfig, RateConfig
from iris.config.checks.values import raised_by
from iris.config.schema import ClusterConfig
from iris.model import names
from iris.model.errors import InvalidValue

#: The keys of a rate that contain prices.
UNITS = ("machine_hour", "chip_hour", "gpu_hour")
#: The keys of a budget that contain its limit. Exactly one of them is set.
LIMITS = ("amount", "chip_hours", "gpu_hours")
#: The value of `user` for a budget that applies to each user separately.
EACH_USER = "*"


def accounting_problems(config: ClusterConfig) -> Iterator[InvalidValue]:
    """Yields the problems of the prices, the teams and the budgets.

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
    for name, budget in config.budgets.items():
        yield from raised_by(names.check_name, f"budgets.{name}", name)
        yield from _budget(config, f"budgets.{name}", budget)


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


def _budget(config: ClusterConfig, path: str, budget: BudgetConfig) -> Iterator[InvalidValue]:
    if bool(budget.user) == bool(budget.team):
        both = f"{budget.user}, {budget.team}" if budget.user else ""
        problem = "is for a user and a team" if budget.user else "is for nobody"
        yield InvalidValue(path, both, problem, "set either user or team")
    if budget.user not in ("", EACH_USER) and not names.is_name(budget.user):
        remedy = f"write it as in jobs, or {EACH_USER} for each user"
        yield InvalidValue(f"{path}.user", budget.user, "is not the name of a user", remedy)
    if budget.team and budget.team not in config.teams:
        remedy = "add it to teams, or use one of them"
        yield InvalidValue(f"{path}.team", budget.team, "is not a team", remedy)
    given = [key for key in LIMITS if key in budget.model_fields_set]
    if len(given) != 1:
        problem = "has several limits" if given else "has no limit"
        remedy = f"set one of {', '.join(LIMITS[:-1])} and {LIMITS[-1]}"
        yield InvalidValue(path, ", ".join(given), problem, remedy)
    if "amount" in given and not config.prices.rates:
        remedy = "add prices.rates, or limit chip_hours or gpu_hours"
        yield InvalidValue(f"{path}.amount", budget.amount, "needs prices", remedy)
