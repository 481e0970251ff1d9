"""Confluent's own client and serializers, with Penstock's broker and registry behind them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from penstock.testing import RunningBroker, broker

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "item", "type": "string"}, {"name": "count", "type": "int"}],
}
ORDER_JSON = {
    "title": "Order",
    "type": "object",
    "properties": {"item": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["item"],
}


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(http=True) as started:
        yield started


@pytest.fixture
def client(running: RunningBroker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": running.http}) as connected:
        yield connected


@pytest.fixture
def other(running: RunningBroker) -> Iterator[SchemaRegistryClient]:
    """A client that knows nothing yet: a reader depends on what the registry tells it."""
    with SchemaRegistryClient({"url": running.http}) as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid.uuid4().hex[:8]}"


def through(
    running: RunningBroker,
    topic: str,
    serialize: Callable[[Any, SerializationContext], bytes],
    deserialize: Callable[[bytes, SerializationContext], Any],
    *values: Any,
) -> list[Any]:
    """What comes out of a topic into which values were sent."""
    context = SerializationContext(topic, MessageField.VALUE)
    producer = Producer({"bootstrap.servers": running.bootstrap})
    for value in values:
        producer.produce(topic, serialize(value, context))
    assert producer.flush(30) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": running.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    try:
        found: list[Any] = []
        while len(found) < len(values):
            message = consumer.poll(30)
            assert message is not None and message.error() is None
            found.append(deserialize(message.value(), context))
        return found
    finally:
        consumer.close()


# -- the three serializers


def test_avro(
    running: RunningBroker, client: SchemaRegistryClient, other: SchemaRegistryClient, topic: str
) -> None:
    orders = [{"item": "tea", "count": 2}, {"item": "ink", "count": 1}]
    serializer = AvroSerializer(client, json.dumps(ORDER))
    assert through(running, topic, serializer, AvroDeserializer(other), *orders) == orders
    assert client.get_latest_version(f"{topic}-value").version == 1


def test_avro_written_with_one_schema_and_read_with_the_next(
    running: RunningBroker, client: SchemaRegistryClient, topic: str
) -> None:
    newer = ORDER | {
        "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": "-"}]
    }
    reader = AvroDeserializer(client, json.dumps(newer))
    (order,) = through(
        running,
        topic,
        AvroSerializer(client, json.dumps(ORDER)),
        reader,
        {"item": "tea", "count": 2},
    )
    assert order == {"item": "tea", "count": 2, "note": "-"}
    client.register_schema(f"{topic}-value", Schema(json.dumps(newer), "AVRO"))
    assert client.get_versions(f"{topic}-value") == [1, 2]


def test_json(
    running: RunningBroker, client: SchemaRegistryClient, other: SchemaRegistryClient, topic: str
) -> None:
    orders = [{"item": "tea", "count": 2}]
    serializer = JSONSerializer(json.dumps(ORDER_JSON), client)
    deserializer = JSONDeserializer(None, schema_registry_client=other)
    assert through(running, topic, serializer, deserializer, *orders) == orders
    assert client.get_latest_version(f"{topic}-value").schema.schema_type == "JSON"


def messages(*files: descriptor_pb2.FileDescriptorProto) -> dict[str, Any]:
    """Classes for the messages of files, as protoc would generate them."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    found: dict[str, Any] = {}
    for file in files:
        pool.Add(file)
        for message in file.message_type:
            name = f"{file.package}.{message.name}"
            found[message.name] = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    return found


def shop_files() -> list[descriptor_pb2.FileDescriptorProto]:
    kinds = descriptor_pb2.FieldDescriptorProto
    money = descriptor_pb2.FileDescriptorProto(
        name="shop/money.proto", package="shop", syntax="proto3"
    )
    cents = money.message_type.add(name="Money").field.add(name="cents", number=1)
    cents.type, cents.label = kinds.TYPE_INT64, kinds.LABEL_OPTIONAL
    order = descriptor_pb2.FileDescriptorProto(
        name="shop/order.proto",
        package="shop",
        syntax="proto3",
        dependency=["shop/money.proto", "google/protobuf/timestamp.proto"],
    )
    made = order.message_type.add(name="Order")
    for number, (name, kind) in enumerate(
        [("item", ""), ("price", ".shop.Money"), ("at", ".google.protobuf.Timestamp")], 1
    ):
        field = made.field.add(name=name, number=number, label=kinds.LABEL_OPTIONAL)
        field.type = kinds.TYPE_MESSAGE if kind else kinds.TYPE_STRING
        if kind:
            field.type_name = kind
    return [money, order]


def test_protobuf_with_an_imported_file(
    running: RunningBroker, client: SchemaRegistryClient, other: SchemaRegistryClient, topic: str
) -> None:
    classes = messages(*shop_files())
    order = classes["Order"](item="tea", price=classes["Money"](cents=250))
    order.at.FromSeconds(1_700_000_000)
    conf = {"use.deprecated.format": False}
    (found,) = through(
        running,
        topic,
        ProtobufSerializer(classes["Order"], client, conf),
        ProtobufDeserializer(classes["Order"], conf, other),
        order,
    )
    assert found == order
    latest = client.get_latest_version(f"{topic}-value")
    assert latest.schema.schema_type == "PROTOBUF"
    assert [r.name for r in latest.schema.references] == ["shop/money.proto"]
    assert client.get_referenced_by("shop/money.proto", 1) == [latest.schema_id]


# -- the client


def test_two_subjects_share_the_id_of_a_schema(client: SchemaRegistryClient, topic: str) -> None:
    schema = Schema(json.dumps(ORDER | {"name": "Shared"}), "AVRO")
    one = client.register_schema(f"{topic}-key", schema)
    other = client.register_schema(f"{topic}-value", schema)
    assert one == other == client.register_schema(f"{topic}-key", schema)
    places = {(v.subject, v.version) for v in client.get_schema_versions(one)}
    assert places == {(f"{topic}-key", 1), (f"{topic}-value", 1)}
    assert client.get_subjects_by_schema_id(one) == [f"{topic}-key", f"{topic}-value"]


def test_looking_up_and_deleting(client: SchemaRegistryClient, topic: str) -> None:
    schema = Schema(json.dumps(ORDER | {"name": "Gone"}), "AVRO")
    schema_id = client.register_schema(topic, schema)
    found = client.lookup_schema(topic, schema)
    assert (found.schema_id, found.version) == (schema_id, 1)
    assert topic in client.get_subjects()
    assert client.delete_subject(topic) == [1]
    assert topic not in client.get_subjects()
    assert client.get_schema(schema_id) is not None
    assert client.delete_subject(topic, permanent=True) == [1]


def test_compatibility_and_configuration(client: SchemaRegistryClient, topic: str) -> None:
    client.register_schema(topic, Schema(json.dumps(ORDER), "AVRO"))
    wider = ORDER | {"fields": [*ORDER["fields"], {"name": "more", "type": "int"}]}
    new = Schema(json.dumps(wider), "AVRO")
    assert client.get_compatibility() == "BACKWARD"
    assert not client.test_compatibility(topic, new)
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(topic, new)
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    client.set_compatibility(topic, "FORWARD")
    assert client.get_compatibility(topic) == "FORWARD"
    assert client.test_compatibility(topic, new)
    client.register_schema(topic, new)


def test_references_of_the_client(client: SchemaRegistryClient, topic: str) -> None:
    money = {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}
    client.register_schema(f"{topic}-money", Schema(json.dumps(money), "AVRO"))
    order = {"type": "record", "name": "Bill", "fields": [{"name": "sum", "type": "Money"}]}
    reference = SchemaReference("Money", f"{topic}-money", 1)
    schema_id = client.register_schema(topic, Schema(json.dumps(order), "AVRO", [reference]))
    assert client.get_schema(schema_id).references == [reference]
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_version(f"{topic}-money", 1)
    assert refused.value.error_code == 42206
