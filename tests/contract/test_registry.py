"""The registry's REST interface: what is answered, with which codes, and what a restart keeps."""

from __future__ import annotations

import http.client
import json
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from tests.support.registry import CONTENT_TYPE, Rest, record
from tests.support.serving import serving

from penstock.testing import broker

A = record(("a", "string"))
AB = record(("a", "string"), ("b", "int"))
AC = A | {"fields": [*A["fields"], {"name": "c", "type": "int", "default": 0}]}


@pytest.fixture
def rest() -> Iterator[Rest]:
    with broker(http=True) as running:
        assert running.http is not None
        yield Rest(running.http)


def schema(value: Any) -> dict[str, Any]:
    return {"schema": json.dumps(value)}


# -- registering and finding


def test_a_schema_is_registered_once(rest: Rest) -> None:
    assert rest.register("s", A).body == {"id": 1}
    assert rest.register("s", A).body == {"id": 1}
    assert rest.register("s", dict(reversed(A.items()))).body == {"id": 1}, "in another order"
    assert rest.register("s", AC).body == {"id": 2}
    assert rest.get("/subjects").body == ["s"]
    assert rest.get("/subjects/s/versions").body == [1, 2]


def test_answers_have_confluents_form(rest: Rest) -> None:
    rest.register("s", A)
    text = json.dumps(A, separators=(",", ":"))
    version = {"subject": "s", "version": 1, "id": 1, "schema": text}
    answer = rest.get("/subjects/s/versions/latest")
    assert (answer.body, answer.content_type) == (version, CONTENT_TYPE)
    assert rest.get("/subjects/s/versions/1").body == version
    assert rest.get("/subjects/s/versions/-1").body == version
    assert rest.get("/schemas").body == [version]
    assert rest.post("/subjects/s", schema(A)).body == version
    assert rest.get("/schemas/ids/1").body == {"schema": text}
    assert rest.get("/schemas/ids/1?fetchMaxId=true").body == {"schema": text, "maxId": 1}
    assert rest.get("/schemas/ids/1/schema").body == A
    assert rest.get("/subjects/s/versions/1/schema").body == A
    assert rest.get("/schemas/ids/1/subjects").body == ["s"]
    assert rest.get("/schemas/ids/1/versions").body == [{"subject": "s", "version": 1}]
    assert rest.get("/schemas/types").body == ["AVRO", "JSON", "PROTOBUF"]


def test_names_of_subjects_may_hold_anything(rest: Rest) -> None:
    assert rest.register("a%2Fb%20%C3%A9", A).status == 200
    assert rest.get("/subjects").body == ["a/b \u00e9"]
    assert rest.get("/subjects/a%2Fb%20%C3%A9/versions").body == [1]


def test_two_subjects_share_an_id(rest: Rest) -> None:
    assert [rest.register(subject, A).body["id"] for subject in "st"] == [1, 1]
    assert rest.register("t", '"int"').status == 409
    assert rest.register("u", '"int"').body == {"id": 2}


def test_lists_come_in_parts(rest: Rest) -> None:
    for name in ("aa", "ab", "b"):
        rest.register(name, A)
    rest.register("aa", AC)
    assert rest.get("/subjects?subjectPrefix=a").body == ["aa", "ab"]
    assert rest.get("/subjects?offset=1&limit=1").body == ["ab"]
    latest = rest.get("/schemas?latestOnly=true&subjectPrefix=a").body
    assert [(v["subject"], v["version"]) for v in latest] == [("aa", 2), ("ab", 1)]
    assert len(rest.get("/schemas?limit=3").body) == 3


def test_normalize(rest: Rest) -> None:
    spelled = {"fields": [{"type": {"type": "string"}, "name": "a"}], "name": "R", "type": "record"}
    body = schema(spelled)
    assert rest.post("/subjects/s/versions?normalize=true", body).body == {"id": 1}
    normal = '{"type":"record","name":"R","fields":[{"type":"string","name":"a"}]}'
    assert rest.get("/schemas/ids/1/schema").body == json.loads(normal)
    assert rest.post("/subjects/s?normalize=true", body).body["version"] == 1
    assert rest.post("/subjects/s", body).code == 40403
    rest.put("/config/s", {"normalize": True})
    assert rest.post("/subjects/s", body).body["version"] == 1
    assert rest.register("s", spelled).body == {"id": 1}


# -- deleting


def test_deleting_a_version(rest: Rest) -> None:
    rest.register("s", A)
    rest.register("s", AC)
    assert rest.delete("/subjects/s/versions/1?permanent=true").code == 40407
    assert rest.delete("/subjects/s/versions/1").body == 1
    assert rest.delete("/subjects/s/versions/1").code == 40406
    assert rest.get("/subjects/s/versions").body == [2]
    assert rest.get("/subjects/s/versions?deleted=true").body == [1, 2]
    assert rest.get("/subjects/s/versions/1").code == 40402
    assert rest.get("/subjects/s/versions/1?deleted=true").status == 200
    assert rest.post("/subjects/s", schema(A)).code == 40403
    assert rest.get("/schemas/ids/1").status == 200, "what was written is still read"
    assert rest.register("s", A).body == {"id": 1}, "it comes back with its id"
    assert rest.get("/subjects/s/versions").body == [2, 3]
    assert rest.delete("/subjects/s/versions/1?permanent=true").body == 1
    assert rest.get("/subjects/s/versions?deleted=true").body == [2, 3]
    assert rest.delete("/subjects/s/versions/latest").body == 3


def test_deleting_a_subject(rest: Rest) -> None:
    rest.register("s", A)
    rest.register("s", AC)
    rest.put("/config/s", {"compatibility": "NONE"})
    assert rest.delete("/subjects/s?permanent=true").code == 40405
    assert rest.delete("/subjects/s").body == [1, 2]
    assert rest.delete("/subjects/s").code == 40404
    assert rest.get("/subjects").body == []
    assert rest.get("/subjects?deleted=true").body == ["s"]
    assert rest.get("/subjects?deletedOnly=true").body == ["s"]
    assert rest.get("/subjects/s/versions").code == 40401
    assert rest.get("/config/s").code == 40408
    assert rest.delete("/subjects/s?permanent=true").body == [1, 2]
    assert rest.get("/schemas/ids/1").code == 40403
    assert rest.get("/subjects?deleted=true").body == []
    assert rest.delete("/subjects/s").code == 40401


def test_an_id_is_not_given_again_after_its_schema_has_gone(tmp_path: Path) -> None:
    with broker(tmp_path, http=True) as running:
        rest = Rest(str(running.http))
        rest.register("s", A)
        assert rest.register("gone", '"int"').body == {"id": 2}
        rest.delete("/subjects/gone")
        rest.delete("/subjects/gone?permanent=true")
        assert rest.register("t", '"long"').body == {"id": 3}
        rest.delete("/subjects/t")
        rest.delete("/subjects/t?permanent=true")
    with broker(tmp_path, http=True) as running:
        assert Rest(str(running.http)).register("t", '"string"').body == {"id": 4}


def test_an_id_is_not_given_again_once_compaction_has_removed_every_trace() -> None:
    with broker(http=True) as running:
        rest = Rest(str(running.http))
        for subject, text in (("s", '"int"'), ("gone", '"long"')):
            rest.register(subject, text)
        rest.delete("/subjects/gone")
        rest.delete("/subjects/gone?permanent=true")
        last = {json.dumps(key): value for key, value in records_of(running.bootstrap)}
    with broker(http=True) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for key, value in last.items():
            if value is not None:
                producer.produce("_schemas", json.dumps(value).encode(), key.encode())
        assert producer.flush(30) == 0
        rest = Rest(str(running.http))
        assert rest.get("/subjects?deleted=true").body == ["s"]
        assert rest.register("t", '"string"').body == {"id": 3}


# -- references


def test_references(rest: Rest) -> None:
    rest.register("money", record(("cents", "long"), name="Money"))
    bill = record(("sum", "Money"), name="Bill")
    reference = {"name": "Money", "subject": "money", "version": 1}
    assert rest.register("bill", bill).code == 42201
    assert rest.register("bill", bill, references=[reference | {"version": 9}]).code == 42201
    assert rest.register("bill", bill, references=[reference | {"version": -1}]).body == {"id": 2}
    assert rest.get("/schemas/ids/2").body["references"] == [reference]
    assert rest.get("/subjects/money/versions/1/referencedby").body == [2]
    assert rest.delete("/subjects/money").code == 42206
    assert rest.delete("/subjects/money/versions/1").code == 42206
    rest.delete("/subjects/bill")
    assert rest.delete("/subjects/money").body == [1]


def test_a_bad_reference(rest: Rest) -> None:
    for wrong in ([1], ["x"], [{"name": "a"}], [{"name": 1, "subject": "s", "version": 1}]):
        assert rest.register("s", A, references=wrong).code == 42201


# -- settings


def test_levels(rest: Rest) -> None:
    assert rest.get("/config").body == {"compatibilityLevel": "BACKWARD"}
    assert rest.put("/config", {"compatibility": "full"}).body == {"compatibility": "FULL"}
    assert rest.get("/config").body == {"compatibilityLevel": "FULL"}
    assert rest.get("/config/s").code == 40408
    assert rest.get("/config/s?defaultToGlobal=true").body == {"compatibilityLevel": "FULL"}
    assert rest.put("/config/s", {"compatibility": "NONE"}).status == 200
    assert rest.get("/config/s").body == {"compatibilityLevel": "NONE"}
    assert rest.delete("/config/s").body == {"compatibilityLevel": "NONE"}
    assert rest.get("/config/s").code == 40408
    assert rest.delete("/config").body == {"compatibilityLevel": "FULL"}
    assert rest.get("/config").body == {"compatibilityLevel": "BACKWARD"}
    assert rest.put("/config", {"compatibility": "BEST"}).code == 42203
    assert rest.put("/config", {}).code == 42203
    assert rest.put("/config", {"compatibilityGroup": "x"}).code == 42205


LEVELS = {
    # Field b comes without a default: old readers do not mind, new readers of old data do.
    "NONE": True,
    "BACKWARD": False,
    "BACKWARD_TRANSITIVE": False,
    "FORWARD": True,
    "FORWARD_TRANSITIVE": True,
    "FULL": False,
    "FULL_TRANSITIVE": False,
}


@pytest.mark.parametrize("level", LEVELS)
def test_what_a_level_allows(rest: Rest, level: str) -> None:
    rest.register("s", A)
    rest.put("/config/s", {"compatibility": level})
    for path in ("/compatibility/subjects/s/versions", "/compatibility/subjects/s/versions/latest"):
        assert rest.post(path, schema(AB)).body == {"is_compatible": LEVELS[level]}
    assert rest.register("s", AB).status == (200 if LEVELS[level] else 409)


@pytest.mark.parametrize(("level", "taken"), [("BACKWARD", True), ("BACKWARD_TRANSITIVE", False)])
def test_a_transitive_level_looks_at_all_versions(rest: Rest, level: str, taken: bool) -> None:
    """The second version has a default for b, the third does not, and the first has no b at all."""
    with_default = A | {"fields": [*A["fields"], {"name": "b", "type": "int", "default": 0}]}
    rest.register("s", A)
    rest.register("s", with_default)
    rest.put("/config/s", {"compatibility": level})
    assert rest.register("s", AB).status == (200 if taken else 409)


def test_a_check_can_say_why(rest: Rest) -> None:
    rest.register("s", A)
    path = "/compatibility/subjects/s/versions/1?verbose=true"
    answer = rest.post(path, schema(AB)).body
    assert answer["is_compatible"] is False
    assert "READER_FIELD_MISSING_DEFAULT_VALUE at /fields/1: b" in answer["messages"][0]
    assert rest.post(path, schema(AC)).body == {"is_compatible": True, "messages": []}
    assert rest.post("/compatibility/subjects/s/versions/7", schema(A)).code == 40402
    nobody = rest.post("/compatibility/subjects/nobody/versions/latest", schema(A))
    assert nobody.body == {"is_compatible": True}


def test_a_subject_keeps_its_type(rest: Rest) -> None:
    rest.register("s", A)
    assert rest.register("s", '{"type": "string"}', "JSON").status == 409


def test_modes(rest: Rest) -> None:
    assert rest.get("/mode").body == {"mode": "READWRITE"}
    assert rest.put("/mode", {"mode": "READONLY"}).body == {"mode": "READONLY"}
    assert rest.register("s", A).code == 42205
    assert rest.get("/mode/s").code == 40409
    assert rest.get("/mode/s?defaultToGlobal=true").body == {"mode": "READONLY"}
    assert rest.put("/mode/s", {"mode": "READWRITE"}).body == {"mode": "READWRITE"}
    assert rest.register("s", A).status == 200
    assert rest.delete("/mode/s").body == {"mode": "READWRITE"}
    assert rest.delete("/subjects/s").code == 42205
    assert rest.put("/mode", {"mode": "IMPORT"}).code == 42204


# -- wrong input


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/subjects/nobody/versions", None, 404, 40401),
        ("GET", "/subjects/nobody/versions/1", None, 404, 40401),
        ("DELETE", "/subjects/nobody", None, 404, 40401),
        ("POST", "/subjects/nobody", schema(A), 404, 40401),
        ("GET", "/subjects/s/versions/2", None, 404, 40402),
        ("DELETE", "/subjects/s/versions/2", None, 404, 40402),
        ("POST", "/subjects/s", schema(AB), 404, 40403),
        ("GET", "/schemas/ids/99", None, 404, 40403),
        ("GET", "/schemas/ids/99999999999", None, 404, 40403),
        ("GET", "/schemas/ids/x", None, 404, 404),
        ("GET", "/schemas/ids/99/subjects", None, 404, 40403),
        ("POST", "/subjects/s/versions", {"schema": "{"}, 422, 42201),
        ("POST", "/subjects/s/versions", {"schema": ""}, 422, 42201),
        ("POST", "/subjects/s/versions", {}, 422, 42201),
        ("POST", "/subjects/s/versions", {"schema": {"type": "int"}}, 422, 42201),
        ("POST", "/subjects/s/versions", {"schema": '"int"', "schemaType": "XML"}, 422, 42201),
        ("POST", "/subjects/s/versions", {"schema": "x", "schemaType": "PROTOBUF"}, 422, 42201),
        ("POST", "/subjects/s/versions", {"schema": "3", "schemaType": "JSON"}, 422, 42201),
        ("POST", "/subjects/s/versions", {"schema": '"int"', "id": 7}, 422, 42205),
        ("POST", "/subjects/s/versions", {"schema": '"int"', "ruleSet": {"a": 1}}, 422, 42205),
        ("POST", "/subjects/s/versions", [], 422, 422),
        ("GET", "/subjects/s/versions/0", None, 422, 42202),
        ("GET", "/subjects/s/versions/-2", None, 422, 42202),
        ("GET", "/subjects/s/versions/first", None, 422, 42202),
        ("GET", "/subjects/s/versions/2147483648", None, 422, 42202),
        ("GET", "/subjects?offset=x", None, 422, 422),
        ("PUT", "/mode", {"mode": 3}, 422, 42204),
        ("PUT", "/config", {"compatibility": 3}, 422, 422),
        ("PATCH", "/config", {}, 405, 405),
        ("GET", "/nowhere", None, 404, 404),
        ("GET", "/", None, 404, 404),
    ],
)
def test_codes(rest: Rest, method: str, path: str, body: Any, status: int, code: int) -> None:
    rest.register("s", A)
    answer = rest.call(method, path, body)
    assert (answer.status, answer.code) == (status, code), answer.body


def test_a_page_of_another_site_can_register_nothing(rest: Rest) -> None:
    """A browser sends these types of content anywhere without asking; it asks for JSON."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        path = "/subjects/s/versions"
        assert rest.call("POST", path, schema(A), content_type=kind).status == 415
    assert (
        rest.call(
            "POST",
            "/subjects/s/versions",
            schema(A),
            content_type="application/json; charset=utf-8",
        ).status
        == 200
    )


def test_a_schema_that_no_record_can_hold(rest: Rest) -> None:
    doc = "x" * 1_100_000
    answer = rest.register("s", record(("a", "string"), doc=doc))
    assert (answer.status, answer.code) == (500, 50001)
    assert "max.message.bytes" in answer.body["message"] or "large" in answer.body["message"]
    assert rest.register("s", A).body == {"id": 1}


# -- the topic


def records_of(bootstrap: str) -> list[tuple[Any, Any]]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "x", "auto.offset.reset": "earliest",
         "enable.partition.eof": True}
    )  # fmt: skip
    consumer.subscribe(["_schemas"])
    found: list[tuple[Any, Any]] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None
            if message.error():
                return found
            value = message.value()
            found.append((json.loads(message.key()), value and json.loads(value)))
    finally:
        consumer.close()


def test_the_records_are_those_of_confluents_registry() -> None:
    with broker(http=True) as running:
        rest = Rest(str(running.http))
        rest.register("s", '"int"')
        rest.register("j", "{}", "JSON")
        rest.put("/config", {"compatibility": "FULL"})
        rest.put("/mode/s", {"mode": "READONLY"})
        rest.delete("/mode/s")
        rest.delete("/subjects/s")
        rest.delete("/subjects/s?permanent=true")
        found = records_of(running.bootstrap)
    key = {"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}
    mode = {"keytype": "MODE", "subject": "s", "magic": 0}
    assert found == [
        (key, {"subject": "s", "version": 1, "id": 1, "schema": '"int"', "deleted": False}),
        (
            {"keytype": "SCHEMA", "subject": "j", "version": 1, "magic": 1},
            {"subject": "j", "version": 1, "id": 2, "schemaType": "JSON", "schema": "{}",
             "deleted": False},
        ),
        (
            {"keytype": "CONFIG", "subject": None, "magic": 0},
            {"subject": None, "compatibilityLevel": "FULL"},
        ),
        (mode, {"subject": "s", "mode": "READONLY"}),
        (mode, None),
        (
            {"keytype": "DELETE_SUBJECT", "subject": "s", "magic": 0},
            {"subject": "s", "version": 1},
        ),
        ({"keytype": "NOOP", "magic": 0}, {"maxId": 2}),
        (key, None),
    ]  # fmt: skip


def test_records_of_another_registry_count_at_once() -> None:
    """As they come when its topic is copied, with what only newer registries write."""
    key = {"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}
    value = {
        "subject": "s", "version": 1, "id": 41, "md5": "x", "schema": '"int"', "deleted": False,
        "guid": "y", "ts": 1, "schemaType": None, "references": [], "metadata": None,
    }  # fmt: skip
    with broker(http=True) as running:
        rest = Rest(str(running.http))
        producer = Producer({"bootstrap.servers": running.bootstrap})
        producer.produce("_schemas", b"null", b'{"keytype":"NOOP","magic":0}')
        producer.produce("_schemas", b"nonsense", None)
        producer.produce("_schemas", b"{}", json.dumps({"keytype": "SCHEMA"}).encode())
        producer.produce("_schemas", json.dumps(value).encode(), json.dumps(key).encode())
        assert producer.flush(30) == 0
        assert rest.get("/schemas/ids/41").body == {"schema": '"int"'}
        assert rest.register("t", '"long"').body == {"id": 42}


def test_a_topic_that_somebody_else_made_forgets_nothing() -> None:
    with broker(http=True) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        settings = {"retention.ms": "1000", "segment.ms": "1000", "compression.type": "zstd"}
        made = admin.create_topics([NewTopic("_schemas", 1, 1, config=settings)])
        made["_schemas"].result(30)
        assert Rest(str(running.http)).register("s", A).body == {"id": 1}
        resource = ConfigResource(ConfigResource.Type.TOPIC, "_schemas")
        found = admin.describe_configs([resource])[resource].result(30)
        assert found["retention.ms"].value == "-1" or found["cleanup.policy"].value == "compact"
        assert found["compression.type"].value == "zstd"


def test_a_topic_that_was_deleted_is_made_again() -> None:
    with broker(http=True) as running:
        rest = Rest(str(running.http))
        rest.register("s", A)
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.delete_topics(["_schemas"])["_schemas"].result(30)
        assert rest.get("/subjects").body == []
        assert rest.register("t", A).status == 200
        assert rest.get("/subjects").body == ["t"]


def test_without_the_libraries(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("avro_schema", "json_schema", "protobuf_schema"):
        monkeypatch.setitem(sys.modules, f"penstock.registry.{name}", None)
    for kind in ("AVRO", "JSON", "PROTOBUF"):
        answer = rest.register("s", "x", kind)
        assert (answer.status, answer.code) == (501, 50101)
        assert "pip install 'penstock[registry]'" in answer.body["message"]
    assert rest.get("/subjects").body == []


# -- restarts


def everything(rest: Rest) -> list[Any]:
    paths = ("/subjects?deleted=true", "/schemas?deleted=true", "/config", "/mode")
    return [rest.get(path).body for path in paths]


def test_a_restart_keeps_everything(tmp_path: Path) -> None:
    with broker(tmp_path, http=True) as running:
        rest = Rest(str(running.http))
        rest.register("s", A)
        rest.register("s", AC)
        rest.register("p", 'syntax = "proto3"; message M { int32 a = 1; }', "PROTOBUF")
        rest.delete("/subjects/s/versions/1")
        rest.put("/config", {"compatibility": "FORWARD"})
        rest.put("/mode", {"mode": "READONLY"})
        before = everything(rest)
    with broker(tmp_path, http=True) as running:
        assert everything(Rest(str(running.http))) == before


def test_kill_9_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    """Killed again and again while several clients register: an id that was told stays what it was."""
    told: dict[str, int] = {}
    number = 0
    for _ in range(4):
        with serving(tmp_path, "--http", "127.0.0.1:0") as server:
            rest = Rest(server.http)
            for subject, schema_id in told.items():
                text = rest.get(f"/schemas/ids/{schema_id}").body["schema"]
                assert json.loads(text)["name"] == subject
                assert rest.get(f"/subjects/{subject}/versions").body == [1]

            def register(names: list[str], rest: Rest = rest) -> None:
                for name in names:
                    try:
                        answer = rest.register(name, record(("a", "int"), name=name))
                    except (OSError, http.client.HTTPException):
                        return  # also an answer that ends in the middle
                    assert answer.status == 200
                    told[name] = answer.body["id"]

            threads = []
            for _ in range(3):
                names = [f"N{number + n}" for n in range(400)]
                number += 400
                threads.append(threading.Thread(target=register, args=(names,)))
            wanted = len(told) + 40
            for thread in threads:
                thread.start()
            while len(told) < wanted:
                threads[0].join(0.001)
            server.kill()
            for thread in threads:
                thread.join()
    assert len(set(told.values())) == len(told), "an id was given twice"
    assert len(told) >= 160


# -- the port


def test_health(rest: Rest) -> None:
    assert rest.get("/livez").body == {"status": "alive"}
    assert rest.get("/readyz").body == {"status": "ready"}
    head = urllib.request.Request(rest.url + "/livez", method="HEAD")
    with urllib.request.urlopen(head) as response:
        assert (response.status, response.read()) == (200, b"")
