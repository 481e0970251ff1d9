"""Addresses and the settings of a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import Address, ServeSettings, parse_bytes
from penstock.errors import UsageError


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9092", "127.0.0.1", 9092),
        ("localhost:0", "localhost", 0),
        ("logs.example.org:65535", "logs.example.org", 65535),
        ("[::1]:9092", "::1", 9092),
        ("[2001:DB8:0::1]:1", "2001:db8::1", 1),
        ("broker_1:9092", "broker_1", 9092),
    ],
)
def test_address_is_read(text: str, host: str, port: int) -> None:
    assert Address.parse(text) == Address(host, port)


@pytest.mark.parametrize("text", ["127.0.0.1:9092", "[::1]:9092", "localhost:0"])
def test_address_prints_as_it_is_written(text: str) -> None:
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "cause", "remedy"),
    [
        ("", "it has no port", "write HOST:9092"),
        ("localhost", "it has no port", "write localhost:9092"),
        ("9092", "it has no host", "write 127.0.0.1:9092"),
        (":9092", "it has no host", "write 127.0.0.1:9092, or 0.0.0.0:9092 for all interfaces"),
        ("[::1]", "it has no port", "write [::1]:9092"),
        ("::1:9092", "it has more than one colon", "write it as [ADDRESS]:PORT"),
        ("http://localhost:9092", "it has more than one colon", "HOST:PORT"),
        ("[localhost]:9092", "", "write [::1]:9092"),
        ("local host:9092", "'local host' is not a host", "write HOST:9092"),
        ("a..b:9092", "'a..b' is not a host", "write HOST:9092"),
        ("-a.b:9092", "'-a.b' is not a host", "write HOST:9092"),
        (f"{'a' * 64}.b:9092", "is not a host", "write HOST:9092"),
        ("localhost:", "'' is not a port", "write localhost:PORT"),
        ("localhost:kafka", "'kafka' is not a port", "from 0 to 65535"),
        ("localhost:-1", "'-1' is not a port", "from 0 to 65535"),
        ("localhost:65536", "'65536' is not a port", "from 0 to 65535"),
        ("localhost:٣", "'٣' is not a port", "from 0 to 65535"),
    ],
)
def test_unreadable_address_says_what_to_write(text: str, cause: str, remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        Address.parse(text)
    assert caught.value.operation == f"cannot read the address '{text}'"
    assert cause in caught.value.cause
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("LocalHost.", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.4", False),
        ("localhost.example.org", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert Address(host, 9092).is_loopback is loopback


def test_defaults_are_valid() -> None:
    settings = ServeSettings(Path("data"))
    settings.validate()
    assert str(settings.kafka) == "127.0.0.1:9092"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "logs.example.org"])
def test_address_of_other_machines_needs_insecure(host: str) -> None:
    address = Address(host, 9092)
    with pytest.raises(
        UsageError, match=r"no access control yet; use 127\.0\.0\.1:9092, or add --insecure"
    ):
        ServeSettings(Path("data"), kafka=address).validate()
    ServeSettings(Path("data"), kafka=address, insecure=True).validate()


@pytest.mark.parametrize(
    ("address", "cause"),
    [
        (Address("0.0.0.0", 9092), "every interface"),
        (Address("::", 9092), "every interface"),
        (Address("logs.example.org", 0), "port 0"),
    ],
)
def test_advertised_address_must_be_one_to_connect_to(address: Address, cause: str) -> None:
    with pytest.raises(UsageError, match=cause):
        ServeSettings(Path("data"), advertise=address).validate()


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("1000", 1000), ("3KiB", 3072), ("512MiB", 2**29), ("2GiB", 2**31)]
)
def test_a_number_of_bytes_is_read(text: str, size: int) -> None:
    assert parse_bytes("--memory-topics", text) == size


@pytest.mark.parametrize(
    "text", ["", "0", "0MiB", "-1", "1.5GiB", "2 GiB", "2GB", "1_000", "MiB", "٣"]
)
def test_what_is_no_number_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"cannot read --memory-topics: .*; write 512MiB"):
        parse_bytes("--memory-topics", text)
