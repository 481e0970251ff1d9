"""Settings of a server: plain frozen values, checked before anything is opened.

Addresses are written HOST:PORT everywhere, as Kafka clients write them. Nothing here resolves names
or touches the network.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.errors import UsageError

KAFKA_PORT: Final = 9092
HTTP_PORT: Final = 8080
_PORT_MAX: Final = 65_535
_LABEL: Final = r"[A-Za-z0-9_-]{1,63}"
_HOST_NAME: Final = re.compile(
    rf"(?=[A-Za-z0-9]){_LABEL}(\.{_LABEL})*(?<=[A-Za-z0-9])\.?", re.ASCII
)
# What a listener is bound to in order to be reached on every interface; nobody can connect to it.
_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 -- recognised here, not bound


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """A host and a port; port 0 means one that the operating system picks."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read HOST:PORT; an IPv6 address stands in brackets.

        Raises:
            UsageError: text is something else; the message says what to write.
        """
        operation = f"cannot read the address '{text}'"
        host, colon, port = text.rpartition(":")
        if not colon:
            if text.isdigit():
                raise UsageError(operation, "it has no host", f"write 127.0.0.1:{text}")
            raise UsageError(operation, "it has no port", f"write {text or 'HOST'}:{KAFKA_PORT}")
        if text.startswith("[") and text.endswith("]"):
            raise UsageError(operation, "it has no port", f"write {text}:{KAFKA_PORT}")
        return cls(_host(host, port, operation), _port(host, port, operation))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it.

        Of names only `localhost` counts: what another name stands for is somebody else's to change.
        """
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower().rstrip(".") == "localhost"

    @property
    def is_wildcard(self) -> bool:
        """Whether it stands for every interface of the machine."""
        return self.host in _WILDCARDS

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def _host(host: str, port: str, operation: str) -> str:
    if not host:
        remedy = f"write 127.0.0.1:{port}, or 0.0.0.0:{port} for all interfaces"
        raise UsageError(operation, "it has no host", remedy)
    if host.startswith("[") and host.endswith("]"):
        try:
            return str(ipaddress.IPv6Address(host[1:-1]))
        except ValueError as error:
            raise UsageError(operation, str(error), f"write [::1]:{KAFKA_PORT}") from error
    if ":" in host:
        remedy = "write it as [ADDRESS]:PORT if it is an IPv6 address, or else as HOST:PORT"
        raise UsageError(operation, "it has more than one colon", remedy)
    if not _HOST_NAME.fullmatch(host):
        raise UsageError(operation, f"'{host}' is not a host", f"write HOST:{KAFKA_PORT}")
    return host


def _port(host: str, port: str, operation: str) -> int:
    # isdigit alone would let through digits of other scripts.
    if not (port.isascii() and port.isdigit()) or int(port) > _PORT_MAX:
        cause = f"'{port}' is not a port"
        raise UsageError(operation, cause, f"write {host}:PORT with a port from 0 to {_PORT_MAX}")
    return int(port)


_UNITS: Final = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE: Final = re.compile(r"([0-9]{1,18})(|KiB|MiB|GiB)", re.ASCII)


def parse_bytes(option: str, text: str) -> int:
    """Read a number of bytes: plain digits, or with KiB, MiB or GiB behind them.

    Raises:
        UsageError: text is something else, or none at all.
    """
    found = _SIZE.fullmatch(text)
    size = int(found[1]) * _UNITS[found[2]] if found else 0
    if size == 0:
        cause = f"'{text}' is not a number of bytes above 0"
        raise UsageError(f"cannot read {option}", cause, "write 512MiB, 2GiB, or the bytes")
    return size


DEFAULT_KAFKA_ADDRESS: Final = Address("127.0.0.1", KAFKA_PORT)
DEFAULT_HTTP_ADDRESS: Final = Address("127.0.0.1", HTTP_PORT)


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """What `penstock serve` was asked for."""

    data: Path
    """Folder that holds everything; created if it does not exist."""
    kafka: Address = DEFAULT_KAFKA_ADDRESS
    """Where Kafka clients connect."""
    advertise: Address | None = None
    """What clients are told to connect to; None for the address each of them reached."""
    http: Address | None = None
    """Where HTTP clients connect; None for nowhere."""
    http_if_free: bool = False
    """Do without HTTP if another program has its address: nobody asked for just that one."""
    views: str | None = None
    """The store of materialized views that HTTP clients may ask; None for none."""
    memory_topics: int | None = None
    """Bytes that topics of durability memory may hold together; None for a share of the machine's."""
    insecure: bool = False
    """Serve addresses that other machines can reach, although nobody is asked who they are."""

    def validate(self) -> None:
        """Refuse what cannot work or is not safe.

        Raises:
            UsageError: the settings contradict each other or would expose the data.
        """
        for address in (self.kafka, self.http):
            if not (address is None or address.is_loopback or self.insecure):
                raise UsageError(
                    f"cannot listen on {address}",
                    "other machines could read and write everything: there is no access control yet",
                    f"use 127.0.0.1:{address.port}, or add --insecure on a network you trust",
                )
        if self.views is not None and self.http is None:
            cause = "they are asked over HTTP, and that is off"
            raise UsageError(
                "cannot serve views", cause, "leave out --views, or give --http HOST:PORT"
            )
        if self.advertise is None:
            return
        operation = f"cannot advertise {self.advertise}"
        if self.advertise.is_wildcard:
            cause = "it stands for every interface, and clients cannot connect to that"
            raise UsageError(operation, cause, "write the name or address that clients use")
        if self.advertise.port == 0:
            raise UsageError(operation, "port 0 is not a port to connect to", "write the real port")
