"""A real Kafka that wants TLS and passwords, or certificates of its clients."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tools.kafka import free_ports, running_kafka

USER = "alice"
PASSWORD = "pass=word-of-the-tests"
_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class SecureKafka:
    """Where to find what."""

    plaintext: str
    passwords: str
    """SASL_SSL: PLAIN and SCRAM."""
    certificates: str
    """SSL: only for clients with a certificate."""
    ca: Path
    client: Path
    """Certificate and key of a client."""


@contextlib.contextmanager
def running_secure_kafka(folder: Path) -> Iterator[SecureKafka]:
    """One node; its certificate is for 127.0.0.1, and not for localhost."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    ca, server, client = (folder / f"{name}.pem" for name in ("ca", "server", "client"))
    authority.cert_pem.write_to_path(ca)
    server.write_bytes(_key_and_chain(authority.issue_cert("127.0.0.1")))
    client.write_bytes(_key_and_chain(authority.issue_cert("client@example.org")))
    passwords, certificates = free_ports(2)
    with running_kafka(
        folder / "kafka",
        overrides=_overrides(ca, server),
        listeners={"SASL_SSL": passwords, "SSL": certificates},
        formatting=_scram_users(),
    ) as running:
        yield SecureKafka(
            running.bootstrap,
            f"127.0.0.1:{passwords}",
            f"127.0.0.1:{certificates}",
            ca,
            client,
        )


def _overrides(ca: Path, server: Path) -> dict[str, str]:
    login = "org.apache.kafka.common.security"
    of_listener = "listener.name.sasl_ssl"
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
        "listener.name.ssl.ssl.client.auth": "required",
        f"{of_listener}.sasl.enabled.mechanisms": ",".join(("PLAIN", *_MECHANISMS)),
        f"{of_listener}.plain.sasl.jaas.config": (
            f'{login}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        ),
    }
    for mechanism in _MECHANISMS:
        settings[f"{of_listener}.{mechanism.lower()}.sasl.jaas.config"] = (
            f"{login}.scram.ScramLoginModule required;"
        )
    return settings


def _scram_users() -> list[str]:
    return [
        part
        for mechanism in _MECHANISMS
        for part in ("--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]")
    ]


def _key_and_chain(issued: trustme.LeafCert) -> bytes:
    """In the one form of keys that Kafka reads."""
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    plain: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return plain + b"".join(one.bytes() for one in issued.cert_chain_pems)
