"""Checks a whole configuration: its name, its platform, its scheduler, and through the other
modules all other sections.
"""

import re
from collections.abc import Iterable, Iterator

from iris.config.checks.accounting import accounting_problems
from iris.config.checks.bootstrap import bootstrap_problems
from iris.config.checks.controller import controller_problems
from iris.config.checks.groups import group_problems, longest_delay_problems
from iris.config.checks.mixed import ssh_file_problems
from iris.config.checks.quotas import quota_problems
from iris.config.checks.values import gcp_zone, raised_by, repeated
from iris.config.dashboard import dashboard_problems
from iris.config.defaults import secret_manager_references
from iris.config.errors import InvalidConfig
from iris.config.schema import ALL_APIS, ClusterConfig
from iris.config.values import write_duration
from iris.model import names
from iris.model.errors import InvalidValue
from iris.model.rules import SHORTEST_LEASE
from iris.model.slice.scale_groups import is_gcp_zone, region_of

_LABEL = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")
#: Matches the id of a project on Google Cloud. The ids of some organizations begin with their
#: domain. Source: cloud.google.com/resource-manager/docs/creating-managing-projects
_PROJECT = re.compile(r"([a-z0-9][a-z0-9.-]*:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")


def problems_of(config: ClusterConfig, groups: Iterable[str] = ()) -> list[str]:
    """Returns a line for each error of the configuration. The defaults must have been applied.

    Args:
        groups: the names of groups that were left out of the configuration because they have other
            errors.
    """
    return [str(each) for each in _all(config, groups)]


def check_config(config: ClusterConfig) -> ClusterConfig:
    """Returns the configuration unchanged. Its defaults must have been applied.

    Raises:
        InvalidConfig: the configuration has errors; `problems` lists them.
    """
    if problems := problems_of(config):
        raise InvalidConfig(problems)
    return config


def _all(config: ClusterConfig, groups: Iterable[str]) -> Iterator[InvalidValue]:
    yield from raised_by(names.check_name, "name", config.name)
    yield from _platform(config)
    yield from controller_problems(config)
    yield from dashboard_problems(config)
    if config.scheduler.lease < SHORTEST_LEASE:
        problem = f"is less than {write_duration(SHORTEST_LEASE)}"
        remedy = "use more: a program must survive a call that fails"
        yield InvalidValue(
            "scheduler.lease", write_duration(config.scheduler.lease), problem, remedy
        )
    yield from longest_delay_problems("defaults.autoscaler", config.defaults.autoscaler)
    yield from bootstrap_problems(config)
    yield from accounting_problems(config)
    yield from quota_problems(config)
    yield from group_problems(config, groups)
    yield from ssh_file_problems(config)


def _platform(config: ClusterConfig) -> Iterator[InvalidValue]:
    gcp = config.platform.gcp
    if gcp is None:
        return
    path = "platform.gcp"
    if _PROJECT.fullmatch(gcp.project_id) is None:
        remedy = (
            "use 6 to 30 lower-case letters, digits and hyphens; start with a letter and do not end"
            " with a hyphen"
        )
        yield InvalidValue(
            f"{path}.project_id", gcp.project_id, "is not a valid project id", remedy
        )
    for zone in gcp.default_zones:
        yield from gcp_zone(f"{path}.default_zones", zone)
        if "region" in gcp.model_fields_set and is_gcp_zone(zone) and region_of(zone) != gcp.region:
            remedy = "list zones of other regions in the groups that use them"
            yield InvalidValue(
                f"{path}.default_zones", zone, f"is not in {path}.region ({gcp.region})", remedy
            )
    yield from repeated(f"{path}.default_zones", gcp.default_zones)
    if _LABEL.fullmatch(gcp.label_prefix) is None:
        remedy = "use up to 32 lower-case letters, digits and dashes; start with a letter"
        yield InvalidValue(
            f"{path}.label_prefix", gcp.label_prefix, "is not a valid label prefix", remedy
        )
    if ALL_APIS not in gcp.scopes and (keys := secret_manager_references(config)):
        problem = f"do not give access to Secret Manager, to which {' and '.join(keys)} refer"
        yield InvalidValue(
            f"{path}.scopes",
            ", ".join(gcp.scopes),
            problem,
            f"add {ALL_APIS}, or refer to files of the hosts",
        )
