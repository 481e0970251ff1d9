"""What happens on a connection before its first request: TLS, and who asks (SASL)."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from penstock.client.connection import library
from penstock.client.security import RefusedError, Security

_HANDSHAKE: Final = 1  # the first after which the exchange is requests, not bare bytes
_AUTHENTICATE: Final = 2
_UNSUPPORTED_MECHANISM: Final = 33
Ask = Callable[[Any, int], Any]


def encrypt(plain: socket.socket, host: str, security: Security, operation: str) -> socket.socket:
    """The same connection with TLS.

    Raises:
        RefusedError: one side does not trust the certificate of the other.
        OSError: the connection broke.
    """
    context = security.context(operation)
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        cause = f"the certificate of {host} is not trusted: {error.verify_message}"
        remedy = "name its authority in ssl.ca.location, and the host as the certificate does"
        raise RefusedError(operation, cause, remedy) from error
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
        raise  # it hung up, for whatever reason
    except ssl.SSLError as error:
        raise tls_refused(host, error, operation) from error


def tls_refused(host: str, error: ssl.SSLError, operation: str) -> RefusedError:
    """Our error for one of TLS, which may come as late as with the first answer."""
    cause = f"{host} and this client do not agree on TLS: {error.reason or error}"
    remedy = "check security.protocol, the port, and whether it wants ssl.certificate.location"
    return RefusedError(operation, cause, remedy)


def log_in(ask: Ask, host: str, security: Security, operation: str) -> None:
    """Say who asks, and have the broker prove that it knows the password, where the mechanism can.

    Raises:
        RefusedError: name, password or mechanism is not accepted.
    """
    messages = library("kafka.protocol.sasl")
    answer = ask(messages.SaslHandshakeRequest(mechanism=security.mechanism), _HANDSHAKE)
    if answer.error_code == _UNSUPPORTED_MECHANISM:
        cause = f"{host} does not take {security.mechanism}"
        raise RefusedError(operation, cause, f"it takes {', '.join(answer.mechanisms)}")
    mechanism = library("kafka.net.sasl").get_sasl_mechanism(security.mechanism)(
        host=host, **_settings(security)
    )
    while not mechanism.is_done():
        request = messages.SaslAuthenticateRequest(auth_bytes=mechanism.auth_bytes())
        answer = ask(request, _AUTHENTICATE)
        if answer.error_code:
            said = answer.error_message or f"error {answer.error_code}"
            raise _refused(host, security, operation, said)
        try:
            mechanism.receive(bytes(answer.auth_bytes))
        except (ValueError, KeyError) as error:
            said = f"it could not prove that it knows the password ({error})"
            raise _refused(host, security, operation, said) from None
    if not mechanism.is_authenticated():
        raise _refused(host, security, operation, "the exchange did not end as it should")


def _settings(security: Security) -> dict[str, str]:
    return {
        "sasl_mechanism": security.mechanism,
        "sasl_plain_username": security.sasl_username,
        "sasl_plain_password": security.password,
    }


def _refused(host: str, security: Security, operation: str, said: str) -> RefusedError:
    cause = f"{host} does not let {security.username} in: {said}"
    return RefusedError(operation, cause, "check sasl.username, sasl.password and sasl.mechanism")
