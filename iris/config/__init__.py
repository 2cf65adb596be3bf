"""Reads, checks, completes and writes a cluster's configuration: from YAML to `ClusterConfig`, and
from there to scale groups and scheduling rules.

Open `schema.py` first, then `load.py`. `defaults.py` completes what `load.py` has read, and
`checks/` checks it. This package must not import temporalio, google, click or a role's package, and
must not read the clock or the environment.
"""

from iris.config.checks.cluster import check_config
from iris.config.checks.mixed import is_mixed, machine_groups, ssh_secret
from iris.config.checks.risks import risks
from iris.config.checks.served import served_kind, unserved
from iris.config.dashboard import DashboardAddress, dashboard_of
from iris.config.defaults import apply_defaults, secrets_of
from iris.config.errors import InvalidConfig
from iris.config.group_settings import ScaleGroupConfig
from iris.config.groups import quotas_of, rules_of, scale_groups_of
from iris.config.load import (
    config_values,
    dump_config,
    lines_of,
    load_config,
    load_written,
    origins,
)
from iris.config.local import (
    local_config,
    make_local_config,
    on_its_machine,
    with_actions,
    with_rules,
)
from iris.config.schema import Bootstrap, ClusterConfig

__all__ = [
    "Bootstrap",
    "ClusterConfig",
    "DashboardAddress",
    "InvalidConfig",
    "ScaleGroupConfig",
    "apply_defaults",
    "check_config",
    "config_values",
    "dashboard_of",
    "dump_config",
    "is_mixed",
    "lines_of",
    "load_config",
    "load_written",
    "local_config",
    "machine_groups",
    "make_local_config",
    "on_its_machine",
    "origins",
    "quotas_of",
    "risks",
    "rules_of",
    "scale_groups_of",
    "secrets_of",
    "served_kind",
    "ssh_secret",
    "unserved",
    "with_actions",
    "with_rules",
]
