"""The settings of TLS and passwords: what may stand beside what, and no secret in any text."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from penstock.client.security import OPEN, Security
from penstock.errors import UsageError

SECRET = "hunter2"
SASL = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "alice",
    "sasl.password": SECRET,
}


def test_without_settings_there_is_neither_tls_nor_a_password() -> None:
    parsed = Security.parse({}, "x")
    assert parsed == OPEN
    assert not parsed.encrypted
    assert not parsed.named


def test_name_and_password_may_stand_in_a_line_for_java() -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    jaas = f'{module} required username="ali\\"ce" password="a;b\\\\c";'
    given = {
        name: text for name, text in SASL.items() if name[:9] not in ("sasl.user", "sasl.pass")
    }
    parsed = Security.parse({**given, "sasl.jaas.config": jaas}, "x")
    assert (parsed.username, parsed.password) == ('ali"ce', "a;b\\c")


def test_scram_escapes_what_it_has_a_meaning_for() -> None:
    named = {**SASL, "sasl.username": "a=b,c"}
    assert Security.parse(named, "x").sasl_username == "a=3Db=2Cc"
    assert Security.parse({**named, "sasl.mechanism": "plain"}, "x").sasl_username == "a=b,c"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"security.protocol": "TLS"}, "write PLAINTEXT or SSL or SASL_PLAINTEXT or SASL_SSL"),
        ({"sasl.mechanism": "GSSAPI"}, "write PLAIN or SCRAM-SHA-256 or SCRAM-SHA-512"),
        ({"sasl.username": ""}, "set sasl.username and sasl.password"),
        ({"security.protocol": "SSL"}, "is set, but security.protocol is SSL"),
        ({"security.protocol": "PLAINTEXT"}, "set security.protocol to SASL_SSL"),
        ({"ssl.endpoint.identification.algorithm": "no"}, "write https or none"),
    ],
)
def test_a_mistake_says_what_to_write_and_shows_no_secret(
    change: dict[str, str], says: str
) -> None:
    with pytest.raises(UsageError) as error:
        Security.parse({**SASL, **change}, "cannot read")
    assert says in str(error.value)
    assert SECRET not in str(error.value)


def test_no_secret_in_its_text() -> None:
    assert SECRET not in repr(Security.parse({**SASL, "ssl.key.password": SECRET}, "x"))


def test_a_file_that_is_missing_or_locked_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no/such/file cannot be used: No such file"):
        Security(protocol="SSL", ca="/no/such/file").context("x")
    issued = trustme.CA().issue_cert("client@example.org")
    file = tmp_path / "client.pem"
    issued.private_key_and_cert_chain_pem.write_to_path(file)
    Security(protocol="SSL", certificate=str(file)).context("x")
    (tmp_path / "key.pem").write_text("no key")
    with pytest.raises(UsageError, match=r"client.pem, .*key.pem cannot be used"):
        Security(protocol="SSL", certificate=str(file), key=str(tmp_path / "key.pem")).context("x")
