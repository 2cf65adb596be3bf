"""The client's operations on hosts, slices, the autoscaler and the store."""

from typing import TYPE_CHECKING

from iris.lazy import modules_of

if TYPE_CHECKING:
    from iris.client.fleet import audit as audit
    from iris.client.fleet import autoscaler as autoscaler
    from iris.client.fleet import cluster_store as cluster_store
    from iris.client.fleet import configure as configure
    from iris.client.fleet import hosts as hosts
    from iris.client.fleet import simulations as simulations
    from iris.client.fleet import slices as slices
    from iris.client.fleet import unused_files as unused_files
    from iris.client.fleet import usage_report as usage_report
    from iris.client.fleet import usage_trace as usage_trace
else:
    __getattr__ = modules_of(__name__)
