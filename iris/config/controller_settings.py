"""Defines the section `controller`: where the control plane runs, and which services it uses."""

from typing import Self

from pydantic import Field, model_validator

from iris.config.texts import (
    Address,
    CloudName,
    HostAndPort,
    Image,
    JumpHost,
    LoginUser,
    Namespace,
    ServerName,
    SshFile,
)
from iris.config.values import (
    AnyPort,
    Flag,
    Port,
    SecretSource,
    Section,
    Size,
    platforms_of,
)
from iris.model.errors import InvalidValue
from iris.model.units import GIB


class TemporalService(Section):
    """An existing Temporal service. Machines on Google Cloud look up the credentials that are named
    here. Clients, and machines elsewhere, read Temporal's own environment variables instead.
    """

    address: HostAndPort = Field(min_length=1, description="`host:port` of the frontend.")
    namespace: Namespace = Field(
        "default", min_length=1, description="The namespace in that service."
    )
    tls: Flag = Field(
        False, description="Whether machines connect with TLS; required for credentials."
    )
    api_key: SecretSource = Field(
        "", description="The API key: gcp:SECRET in Secret Manager, or file:/PATH on each machine."
    )
    client_cert: SecretSource = Field(
        "", description="The certificate for mutual TLS, in PEM; a reference like api_key."
    )
    client_key: SecretSource = Field(
        "", description="The private key of client_cert, in PEM; a reference like api_key."
    )
    server_ca: SecretSource = Field(
        "", description="The service's own CA, in PEM; a reference like api_key; empty: public CAs."
    )
    server_name: ServerName = Field(
        "", description="The name in the service's certificate; empty: that in address."
    )

    @model_validator(mode="after")
    def _is_sent_with_tls(self) -> Self:
        if bool(self.client_cert) != bool(self.client_key):
            raise InvalidValue(
                "client_cert",
                self.client_cert,
                "and client_key belong together",
                "set both or neither",
            )
        if not self.tls and (self.credentials or self.server_name):
            raise InvalidValue(
                "tls", "false", "would send credentials in the clear", "set tls: true"
            )
        return self

    @property
    def credentials(self) -> dict[str, str]:
        """The references to credentials, by their keys in a profile of Temporal."""
        found = {
            "api_key": self.api_key,
            "tls.client_cert_data": self.client_cert,
            "tls.client_key_data": self.client_key,
            "tls.server_ca_cert_data": self.server_ca,
        }
        return {key: source for key, source in found.items() if source}


class GcpControllerConfig(Section):
    """The control plane on a virtual machine of Google Cloud."""

    machine_type: CloudName = Field(
        "n2-standard-4", min_length=1, description="Machine type of the VM."
    )
    port: Port = Field(10000, description="The port for clients and hosts.")
    boot_disk: Size = Field(50 * GIB, description="Size of the boot disk.")
    zone: CloudName = Field(
        "", description="Zone of the VM; unset: the first of platform.gcp.default_zones."
    )
    service_account: CloudName = Field(
        "", description="Service account of the VM; empty: the project's default."
    )
    iap: Flag = Field(
        False,
        description=(
            "Whether clients connect through Identity-Aware Proxy. Required without external_ips."
        ),
    )


class ManualController(Section):
    """The control plane on an existing machine, which Iris reaches over SSH."""

    host: Address = Field(description="The machine's address.")
    port: Port = Field(
        10000,
        description=(
            "The port of the Temporal service, which listens at 127.0.0.1 of the machine only."
        ),
    )
    ssh_user: LoginUser = Field("", description="The login user; empty: defaults.ssh.user.")
    ssh_port: AnyPort = Field(0, description="The port of sshd; 0: defaults.ssh.port.")
    ssh_key_file: SshFile = Field(
        "", description="The private key on your machine; empty: defaults.ssh.key_file."
    )
    ssh_jump_host: JumpHost = Field(
        "", description="[USER@]HOST[:PORT]; empty: defaults.ssh.jump_host."
    )


class LocalControllerConfig(Section):
    """The control plane as a process on this machine."""

    port: AnyPort = Field(0, description="The port for clients; 0: any free port.")


class Controller(Section):
    """Where the control plane runs, and the store and keys that it uses. At most one of gcp, manual
    and local may be set. If none is set, the platform determines where the control plane runs.
    """

    image: Image = Field(
        "", description="Container image of the control plane; required by controller.gcp."
    )
    bundle_prefix: str = Field(
        "",
        description=(
            "URL prefix of bundles, logs and results; required unless the control plane is local."
        ),
    )
    temporal: TemporalService | None = Field(
        None,
        description=(
            "The Temporal service to use; unset: the control plane runs its own, with the state on"
            " its disk."
        ),
    )
    payload_keys: SecretSource = Field(
        "", description="Payload keys on Google Cloud: gcp:SECRET or file:/PATH; empty: none."
    )
    secret_keys: SecretSource = Field(
        "",
        description=(
            "Keys for users' secrets on Google Cloud: gcp:SECRET or file:/PATH; empty: users can"
            " give jobs none."
        ),
    )
    gcp: GcpControllerConfig | None = Field(None, description="A virtual machine of Google Cloud.")
    manual: ManualController | None = Field(None, description="An existing machine.")
    local: LocalControllerConfig | None = Field(None, description="A process on this machine.")

    @model_validator(mode="after")
    def _is_one_at_most(self) -> Self:
        chosen = platforms_of(self)
        if len(chosen) > 1:
            raise InvalidValue(
                "controller",
                ", ".join(chosen),
                "has more than one kind",
                "use one of gcp, manual and local",
            )
        return self

    @property
    def kind(self) -> str:
        """The chosen control plane: `gcp`, `manual` or `local`. It is empty if none is set and the
        platform has no default.
        """
        return next(iter(platforms_of(self)), "")
