"""What the platform has to know of a cluster, whichever slice is asked for."""

from pydantic import BaseModel, ConfigDict

from iris.config_models import ClusterConfig
from iris.errors import InvalidValue
from iris.scale_groups import SliceType


class GcpSettings(BaseModel):
    """A cluster as its machines have to know it, and Google's APIs as it may use them."""

    model_config = ConfigDict(frozen=True)

    project: str
    cluster: str
    #: Chosen at random when the cluster was first started: what tells its machines from those of another of the same name.
    uid: str
    label_prefix: str
    network: str
    subnetwork: str = ""
    external_ips: bool = True
    network_tags: tuple[str, ...] = ()
    #: Which the hosts act as; empty: the project's default one.
    service_account: str = ""
    requests_per_minute: int = 600
    #: `host:port` of the cluster's Temporal service, as hosts reach it.
    address: str = ""
    namespace: str = "default"
    #: The container image of the host agent.
    image: str = ""
    cache_dir: str = "/var/cache/iris"
    #: The whole configuration, as YAML.
    config: str = ""
    #: Where groups have TPUs. That the TPU API does not know one of these zones does not mean that there are none.
    tpu_zones: tuple[str, ...] = ()
    #: Empty: Google's.
    tpu_endpoint: str = ""
    compute_endpoint: str = ""


def gcp_settings(
    config: ClusterConfig, uid: str, *, text: str = "", address: str = "", namespace: str = "default"
) -> GcpSettings:
    """What a complete configuration says.

    Args:
        uid: see `GcpSettings`.
        text: the configuration as YAML; hosts get it as it is.
        address: see `GcpSettings`; empty where nothing is created.

    Raises:
        InvalidValue: it is not for Google Cloud.
    """
    gcp = config.platform.gcp
    if gcp is None:
        raise InvalidValue("platform", config.platform.kind, "is not Google Cloud", "write platform: {gcp: {project_id: …}}")
    return GcpSettings(
        project=gcp.project_id,
        cluster=config.name,
        uid=uid,
        label_prefix=gcp.label_prefix,
        network=gcp.network,
        subnetwork=gcp.subnetwork,
        external_ips=gcp.external_ips,
        network_tags=gcp.network_tags,
        service_account=gcp.service_account,
        requests_per_minute=gcp.requests_per_minute,
        address=address,
        namespace=namespace,
        image=config.bootstrap.image,
        cache_dir=config.bootstrap.cache_dir,
        config=text,
        tpu_zones=_tpu_zones(config),
        tpu_endpoint=gcp.endpoints.tpu,
        compute_endpoint=gcp.endpoints.compute,
    )


def _tpu_zones(config: ClusterConfig) -> tuple[str, ...]:
    groups = [group for group in config.scale_groups.values() if group.type is SliceType.TPU_VM]
    return tuple(sorted({zone for group in groups for zone in group.zones}))
