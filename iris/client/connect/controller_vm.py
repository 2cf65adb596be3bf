"""Finds the machine of a control plane on Google Cloud from the cluster's configuration. Makes no
request.
"""

from iris.client.connect.clusters import ClusterRecord, ControllerVm
from iris.config import ClusterConfig, dashboard_of
from iris.config.controller_settings import GcpControllerConfig
from iris.model.errors import InvalidValue
from iris.platforms.gcp.labels import controller_name
from iris.platforms.gcp.settings import gcp_settings


def controller_vm_of(config: ClusterConfig) -> ControllerVm:
    """Returns the machine of this configuration's control plane, whether or not it exists.

    Raises:
        InvalidValue: the configuration is not for Google Cloud, or names no zone for the control
            plane.
    """
    settings = gcp_settings(config, uid="")
    gcp = config.controller.gcp or GcpControllerConfig()
    if not gcp.zone:
        remedy = "write controller: {gcp: {zone: …}}, or platform: {gcp: {default_zones: […]}}"
        raise InvalidValue("controller.gcp.zone", gcp.zone, "is not a zone", remedy)
    return ControllerVm(
        project=settings.project,
        zone=gcp.zone,
        machine=controller_name(settings),
        port=gcp.port,
        dashboard_port=dashboard_of(config, service=gcp.port).tunnel_port,
        iap=gcp.iap,
    )


def record_of(config: ClusterConfig, machine: str, zone: str) -> ClusterRecord:
    """Builds the record of this configuration's cluster for a control plane on that machine. Opens
    no tunnel.

    Raises:
        InvalidValue: the configuration is not for Google Cloud, or names no zone for the control
            plane.
    """
    temporal = config.controller.temporal
    vm = controller_vm_of(config).model_copy(update={"machine": machine, "zone": zone})
    return ClusterRecord(
        name=config.name,
        address="" if temporal is None else temporal.address,
        namespace="default" if temporal is None else temporal.namespace,
        store=config.controller.bundle_prefix,
        remote=True,
        dashboard="" if vm.dashboard_port else dashboard_of(config, service=vm.port).url,
        project=vm.project,
        vm=vm if temporal is None else None,
    )
