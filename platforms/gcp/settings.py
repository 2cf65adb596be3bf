"""Defines the settings that the platform needs for every slice of a cluster."""

from pydantic import Field

from iris.config.schema import AGENT_SCOPES, ClusterConfig
from iris.model.errors import InvalidValue
from iris.model.frozen import Frozen
from iris.model.job.secrets import SecretKind, parse_secret_source, resource_of
from iris.model.slice.scale_groups import SliceType

#: The beginning of the URL of an OAuth scope.
SCOPES = "https://www.googleapis.com/auth/"


class GcpSettings(Frozen):
    """The settings of one cluster in Google Cloud: the facts that its machines need, and the limits
    of calls to Google's APIs.
    """

    project: str
    cluster: str
    #: A random value from the first start of the cluster. It distinguishes the cluster's machines
    #: from those of another cluster of the same name.
    uid: str
    label_prefix: str
    network: str
    subnetwork: str = ""
    external_ips: bool = True
    network_tags: tuple[str, ...] = ()
    #: The service account of the hosts; empty for the project's default account.
    service_account: str = ""
    #: The OAuth scopes of the hosts' credentials, as URLs.
    scopes: tuple[str, ...] = tuple(f"{SCOPES}{scope}" for scope in AGENT_SCOPES)
    requests_per_minute: int = 600
    #: `host:port` at which hosts reach the cluster's Temporal service.
    address: str = ""
    namespace: str = "default"
    #: The options of the connection to the Temporal service, by their keys in a Temporal profile;
    #: empty if it needs none.
    temporal_options: dict[str, str] = Field(default_factory=dict)
    #: The references to the credentials of the Temporal service, by their keys in a Temporal
    #: profile: `gcp:projects/P/secrets/S/versions/V` or `file:/PATH`.
    temporal_credentials: dict[str, str] = Field(default_factory=dict)
    #: The reference to the file of keys with which the cluster encrypts payloads; empty if it does
    #: not encrypt them.
    payload_keys: str = ""
    #: The reference to the file of private keys that open users' sealed secrets; empty if there is
    #: none.
    secret_keys: str = ""
    #: The container image of the host agent.
    image: str = ""
    cache_dir: str = "/var/cache/iris"
    #: The whole configuration of the cluster, as YAML.
    config: str = ""
    #: The zones of the scale groups with TPUs. If the TPU API does not find one of these zones,
    #: this counts as an error, because a permission may be missing, and not as a zone without TPUs.
    tpu_zones: tuple[str, ...] = ()
    #: The address of the TPU API; empty for Google's own.
    tpu_endpoint: str = ""
    #: The address of the Compute API; empty for Google's own.
    compute_endpoint: str = ""


def gcp_settings(
    config: ClusterConfig,
    uid: str,
    *,
    text: str = "",
    address: str = "",
    namespace: str = "default",
) -> GcpSettings:
    """Converts a complete configuration to settings.

    Args:
        uid: see `GcpSettings`.
        text: the configuration as YAML; hosts get it unchanged.
        address: see `GcpSettings`; may be empty if the caller creates nothing.

    Raises:
        InvalidValue: the configuration is not for Google Cloud.
    """
    gcp = config.platform.gcp
    if gcp is None:
        raise InvalidValue(
            "platform",
            config.platform.kind,
            "is not Google Cloud",
            "write platform: {gcp: {project_id: …}}",
        )
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
        scopes=tuple(f"{SCOPES}{scope}" for scope in gcp.scopes),
        requests_per_minute=gcp.requests_per_minute,
        address=address,
        namespace=namespace,
        temporal_options=_temporal_options(config),
        temporal_credentials=_temporal_credentials(config, gcp.project_id),
        payload_keys=_complete(config.controller.payload_keys, gcp.project_id),
        secret_keys=_complete(config.controller.secret_keys, gcp.project_id),
        image=config.bootstrap.image,
        cache_dir=config.bootstrap.cache_dir,
        config=text,
        tpu_zones=_tpu_zones(config),
        tpu_endpoint=gcp.endpoints.tpu,
        compute_endpoint=gcp.endpoints.compute,
    )


def _temporal_options(config: ClusterConfig) -> dict[str, str]:
    temporal = config.controller.temporal
    if temporal is None or not temporal.tls:
        return {}
    name = {"tls.server_name": temporal.server_name} if temporal.server_name else {}
    return {"address": temporal.address, "namespace": temporal.namespace, **name}


def _temporal_credentials(config: ClusterConfig, project: str) -> dict[str, str]:
    temporal = config.controller.temporal
    return (
        {}
        if temporal is None
        else {key: _complete(source, project) for key, source in temporal.credentials.items()}
    )


def _complete(source: str, project: str) -> str:
    """Returns a reference with the project and the version of a secret in Secret Manager."""
    return (
        str(resource_of(parse_secret_source("", source), project))
        if source.startswith(f"{SecretKind.GCP}:")
        else source
    )


def _tpu_zones(config: ClusterConfig) -> tuple[str, ...]:
    groups = [group for group in config.scale_groups.values() if group.type is SliceType.TPU_VM]
    return tuple(sorted({zone for group in groups for zone in group.zones}))
