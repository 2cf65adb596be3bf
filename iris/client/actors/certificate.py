"""Creates the certificate of a job's actors. Apart from `wire`, because `x509` takes long to import
and callers do not need it.
"""

from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from iris.client.actors.wire import stored_certificate
from iris.model import names
from iris.storage.object_store import Store

#: The certificate never expires, because the clocks of hosts may be wrong. It is deleted with the
#: job.
_VALID = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)


async def make_certificate(store: Store, run: str) -> bytes:
    """Returns the certificate and the private key of a job's actors, as PEM. The first task that
    asks for them creates them.
    """
    await store.put_new(names.actor_certificate(run), new_certificate())
    return await stored_certificate(store, run)


def new_certificate() -> bytes:
    """Returns a new self-signed certificate and its private key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "actors of an Iris job")])
    certificate = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), *_VALID
    ).sign(key, SHA256())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private + certificate.public_bytes(Encoding.PEM)
