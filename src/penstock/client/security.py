"""How a client proves who it is, and knows whom it speaks to: TLS, passwords, certificates.

The names are Kafka's where Kafka has one (`security.protocol`, `sasl.mechanism`, `sasl.jaas.config`) and
those of confluent-kafka where Kafka's mean key stores of Java (`ssl.ca.location` and the like).
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.errors import PenstockError, UsageError

NAMES: Final = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "sasl.jaas.config",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
)
# Whether each has TLS, and whether it has a password.
_PROTOCOLS: Final = {
    "PLAINTEXT": (False, False),
    "SSL": (True, False),
    "SASL_PLAINTEXT": (False, True),
    "SASL_SSL": (True, True),
}
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_HOST_CHECKS: Final = {"https": True, "none": False, "": False}
# As in: org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";
_JAAS: Final = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


class RefusedError(PenstockError):
    """One side does not trust the other; trying again changes nothing."""


@dataclass(frozen=True, slots=True)
class Security:
    """What was asked for. Its text never holds a secret."""

    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    ca: str = ""
    certificate: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)
    check_host: bool = True

    @classmethod
    def parse(cls, given: Mapping[str, str], operation: str) -> Security:
        """Read and check the settings that are named in NAMES.

        Raises:
            UsageError: they make no sense; the message says what to write, and shows no secret.
        """
        protocol = given.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in _PROTOCOLS:
            raise _wrong(operation, "security.protocol", protocol, _PROTOCOLS)
        encrypted, named = _PROTOCOLS[protocol]
        check = given.get("ssl.endpoint.identification.algorithm", "https").lower()
        if check not in _HOST_CHECKS:
            raise _wrong(operation, "ssl.endpoint.identification.algorithm", check, _HOST_CHECKS)
        _refuse_useless(given, operation, protocol, encrypted=encrypted, named=named)
        mechanism, username, password = _login(given, operation) if named else ("", "", "")
        return cls(
            protocol=protocol,
            mechanism=mechanism,
            username=username,
            password=password,
            ca=given.get("ssl.ca.location", ""),
            certificate=given.get("ssl.certificate.location", ""),
            key=given.get("ssl.key.location", ""),
            key_password=given.get("ssl.key.password", ""),
            check_host=_HOST_CHECKS[check],
        )

    @property
    def encrypted(self) -> bool:
        """Whether connections are TLS."""
        return _PROTOCOLS[self.protocol][0]

    @property
    def named(self) -> bool:
        """Whether a name and a password are asked for."""
        return _PROTOCOLS[self.protocol][1]

    def context(self, operation: str) -> ssl.SSLContext:
        """What TLS connections are made with.

        Raises:
            UsageError: a file is missing or is not what it should be.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            context.check_hostname = self.check_host
            if self.certificate:
                # Never None, or OpenSSL would ask for a password on the terminal.
                context.load_cert_chain(
                    self.certificate, self.key or None, lambda: self.key_password
                )
        except (OSError, ValueError) as error:
            files = ", ".join(one for one in (self.ca, self.certificate, self.key) if one)
            said = getattr(error, "strerror", None) or str(error)
            cause = f"the certificates or the key in {files} cannot be used: {said}"
            remedy = "name PEM files that are there on every machine that connects"
            raise UsageError(operation, cause, remedy) from error
        return context

    def library_settings(self, operation: str) -> dict[str, Any]:
        """The same for a client of kafka-python."""
        settings: dict[str, Any] = {"security_protocol": self.protocol}
        if self.encrypted:
            settings["ssl_context"] = self.context(operation)
            settings["ssl_check_hostname"] = self.check_host
        if self.named:
            settings["sasl_mechanism"] = self.mechanism
            settings["sasl_plain_username"] = self.sasl_username
            settings["sasl_plain_password"] = _Hidden(self.password)
        return settings

    @property
    def sasl_username(self) -> str:
        """The name as SCRAM wants it, in which kafka-python leaves commas as they are."""
        if self.mechanism == "PLAIN":
            return self.username
        return self.username.replace("=", "=3D").replace(",", "=2C")


class _Hidden(str):
    """For kafka-python, which writes all its settings to its log."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


OPEN: Final = Security()
"""Neither TLS nor passwords."""


def _login(given: Mapping[str, str], operation: str) -> tuple[str, str, str]:
    mechanism = given.get("sasl.mechanism", "").upper()
    if mechanism not in _MECHANISMS:
        raise _wrong(operation, "sasl.mechanism", mechanism, _MECHANISMS)
    username, password = given.get("sasl.username", ""), given.get("sasl.password", "")
    if jaas := given.get("sasl.jaas.config", ""):
        found = {name: re.sub(r"\\(.)", r"\1", text) for name, text in _JAAS.findall(jaas)}
        username, password = found.get("username", username), found.get("password", password)
    if not username or not password:
        cause = f"there is no name or no password for {mechanism}"
        remedy = "set sasl.username and sasl.password, or both in sasl.jaas.config"
        raise UsageError(operation, cause, remedy)
    return mechanism, username, password


def _refuse_useless(
    given: Mapping[str, str], operation: str, protocol: str, *, encrypted: bool, named: bool
) -> None:
    """A setting that would have no effect is a mistake, and here a dangerous one."""
    for name in given:
        if (name.startswith("ssl.") and not encrypted) or (name.startswith("sasl.") and not named):
            wanted = "SSL or SASL_SSL" if name.startswith("ssl.") else "SASL_SSL or SASL_PLAINTEXT"
            cause = f"{name} is set, but security.protocol is {protocol}"
            raise UsageError(operation, cause, f"set security.protocol to {wanted}")


def _wrong(operation: str, name: str, text: str, choices: Mapping[str, Any] | Any) -> UsageError:
    allowed = " or ".join(one for one in choices if one)
    return UsageError(operation, f"{name} is '{text}'", f"write {allowed}")
