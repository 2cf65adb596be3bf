"""Defines the section of the configuration for a Temporal service that exists already, with
references to its credentials.
"""

from typing import Self

from pydantic import Field, model_validator

from iris.config.texts import HostAndPort, Namespace, ServerName
from iris.config.values import Flag, SecretSource, Section
from iris.model.errors import InvalidValue


class TemporalService(Section):
    """An existing Temporal service. Machines on Google Cloud look up its credentials; clients, and
    machines elsewhere, get them from Temporal's own environment variables.
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
        """The references, by their keys in a profile of Temporal's."""
        found = {
            "api_key": self.api_key,
            "tls.client_cert_data": self.client_cert,
            "tls.client_key_data": self.client_key,
            "tls.server_ca_cert_data": self.server_ca,
        }
        return {key: source for key, source in found.items() if source}
