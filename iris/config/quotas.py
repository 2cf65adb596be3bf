"""Converts the quotas of `ClusterConfig` to rules of the scheduler."""

from iris.config.quota_settings import QuotaAmounts, QuotaConfig
from iris.config.schema import ClusterConfig
from iris.model.quotas import NAMED, QuotaRule, QuotaRules


def quotas_of(config: ClusterConfig) -> QuotaRules:
    """Returns the quotas of a configuration. Teams count only if one of them has a quota."""
    has_teams = any(quota.team for quota in config.quotas.values())
    return QuotaRules(
        quotas=tuple(_rule(name, quota) for name, quota in config.quotas.items()),
        limits=config.limits,
        teams=config.teams if has_teams else {},
    )


def _rule(name: str, quota: QuotaConfig) -> QuotaRule:
    return QuotaRule(
        name=name,
        user=quota.user,
        team=quota.team,
        tag=quota.tag,
        bands=quota.bands,
        nominal=amounts(quota),
        cohort=quota.cohort,
        borrow=amounts(quota.borrow),
        lend=amounts(quota.lend),
        waiting=quota.waiting,
    )


def amounts(section: QuotaAmounts) -> dict[str, int]:
    """Returns the amounts that are set, by resource."""
    found = {
        "chips": section.chips,
        "gpus": section.gpus,
        "cpus": round(section.cpus * 1000) if section.cpus is not None else None,
        "memory": section.memory,
        "hosts": section.hosts,
        **{NAMED + name: amount for name, amount in section.limits.items()},
    }
    return {resource: amount for resource, amount in found.items() if amount is not None}
