"""Certificates of an authority that only the test knows."""

import datetime
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Certificate(NamedTuple):
    #: The file of the authority.
    authority: Path
    #: The files of the service.
    certificate: Path
    key: Path


def certificate_for(host: str, folder: Path) -> Certificate:
    """Writes the certificate of a service, and that of its authority."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of the test")])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)

    def signed(
        name: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
    ) -> bytes:
        builder = x509.CertificateBuilder(
            issuer, name, key.public_key(), x509.random_serial_number(), now - day, now + day
        )
        made = builder.add_extension(extension, critical=True).sign(keys[0], hashes.SHA256())
        return made.public_bytes(serialization.Encoding.PEM)

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    files = Certificate(folder / "authority.pem", folder / "service.pem", folder / "service.key")
    files.authority.write_bytes(
        signed(issuer, keys[0], x509.BasicConstraints(ca=True, path_length=None))
    )
    files.certificate.write_bytes(
        signed(subject, keys[1], x509.SubjectAlternativeName([x509.DNSName(host)]))
    )
    files.key.write_bytes(
        keys[1].private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files
