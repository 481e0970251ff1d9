"""`penstock topics`: list, create, delete, describe, configure, trim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli import output
from penstock.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Format,
    Json,
    Output,
    Yes,
    check_can_ask,
    parse_pairs,
    wants_json,
)
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.client.topics import (
        ConfigValue,
        PartitionState,
        TopicDescription,
        TopicSummary,
        Trim,
    )

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List, create, delete, configure and trim topics.",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the topic.")]

_LIST_EXAMPLES: Final = "\b\nExamples:\n  penstock topics list\n  penstock topics list -o json"
_CREATE_EXAMPLES: Final = (
    "\b\n"
    "Examples:\n"
    "  penstock topics create orders --partitions 6\n"
    "  penstock topics create clicks --config retention.ms=3600000 --config segment.ms=600000"
)
_DELETE_EXAMPLES: Final = (
    "\b\nExamples:\n  penstock topics delete orders\n  penstock topics delete orders clicks --yes"
)
_DESCRIBE_EXAMPLES: Final = (
    "\b\n"
    "Examples:\n"
    "  penstock topics describe orders\n"
    "  penstock topics describe orders --all -o json"
)
_CONFIGURE_EXAMPLES: Final = (
    "\b\n"
    "Examples:\n"
    "  penstock topics configure orders --set retention.ms=86400000\n"
    "  penstock topics configure orders --unset retention.ms --set retention.bytes=1000000000\n"
    "  penstock topics configure orders --partitions 12"
)
_TRIM_EXAMPLES: Final = (
    "\b\n"
    "Examples:\n"
    "  penstock topics trim orders --partition 0 --before 1000000\n"
    "  penstock topics trim clicks --all --yes"
)


@app.command("list", epilog=_LIST_EXAMPLES)
def list_topics(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    internal: Annotated[
        bool, typer.Option("--internal", help="Include the broker's own topics.")
    ] = False,
    output_format: Output = Format.TABLE,
    json: Json = False,
) -> None:
    """List the topics by name."""
    from penstock.client import topics  # noqa: PLC0415 -- keeps --help fast

    found = [topic for topic in topics.list_topics(bootstrap) if internal or not topic.internal]
    if wants_json(output_format, json):
        output.emit_json([_summary_json(topic) for topic in found])
        return
    output.emit_table(
        {"TOPIC": "<", "PARTITIONS": ">", "REPLICAS": ">", "ID": "<"},
        [(one.name, one.partitions, one.replication_factor, one.id or None) for one in found],
    )


@app.command("create", epilog=_CREATE_EXAMPLES)
def create(
    name: Name,
    *,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="How many; -1 for the broker's default.")
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option(help="Copies of each partition; -1 for the broker's default.")
    ] = -1,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="NAME=VALUE", help="Set a value; repeatable."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Output = Format.TABLE,
    json: Json = False,
) -> None:
    """Create a topic and wait until it can be used."""
    from penstock.client import topics  # noqa: PLC0415 -- keeps --help fast

    made = topics.create_topic(
        bootstrap,
        name,
        partitions=partitions,
        replication_factor=replication_factor,
        configs=dict(parse_pairs("--config", config or [])),
    )
    if wants_json(output_format, json):
        output.emit_json(_description_json(made, every_config=False))
        return
    count = output.format_count(made.summary.partitions, "partition")
    copies = made.summary.replication_factor
    output.message(f"created {name} with {count}, replication factor {copies}")


@app.command("delete", epilog=_DELETE_EXAMPLES)
def delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of the topics.")],
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete topics with everything in them.

    Asks first; where there is no terminal to ask on, it needs --yes.
    """
    from penstock.client import topics  # noqa: PLC0415 -- keeps --help fast

    if not yes:
        check_can_ask(f"cannot delete {', '.join(names)}", "it cannot be undone")
        for name in names:
            _confirm(topics.describe_topic(bootstrap, name))
    topics.delete_topics(bootstrap, names)
    output.message(f"deleted {', '.join(names)}")


@app.command("describe", epilog=_DESCRIBE_EXAMPLES)
def describe(
    name: Name,
    *,
    every: Annotated[
        bool, typer.Option("--all", "-a", help="Show configuration values that were not set, too.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Output = Format.TABLE,
    json: Json = False,
) -> None:
    """Show a topic's partitions, offsets and configuration."""
    from penstock.client import topics  # noqa: PLC0415 -- keeps --help fast

    found = topics.describe_topic(bootstrap, name)
    if wants_json(output_format, json):
        output.emit_json(_description_json(found, every_config=every))
        return
    summary = found.summary
    output.emit(f"topic               {summary.name}" + (" (internal)" if summary.internal else ""))
    output.emit(f"id                  {summary.id or '-'}")
    output.emit(f"replication factor  {summary.replication_factor}")
    output.emit("")
    _emit_partitions(found.partitions)
    output.emit("")
    shown = [config for config in found.configs if every or config.source == "topic"]
    if shown:
        _emit_configs(shown)
    else:
        output.emit("no configuration is set; --all shows the values in force")


@app.command("configure", epilog=_CONFIGURE_EXAMPLES)
def configure(
    name: Name,
    *,
    set_values: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Set a value; repeatable."),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", help="Go back to the default; repeatable."),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            min=1,
            metavar="N",
            help="Add partitions until there are N; most keys then belong to another one.",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Output = Format.TABLE,
    json: Json = False,
) -> None:
    """Change a topic's configuration, or give it more partitions.

    All values change in one step or not at all; what is then in force is shown.
    """
    from penstock.client import topics  # noqa: PLC0415 -- keeps --help fast

    values = dict(parse_pairs("--set", set_values or []))
    names = unset or []
    _check_changes(name, values, names, partitions)
    as_json = wants_json(output_format, json)
    if partitions is not None:
        grown = topics.add_partitions(bootstrap, name, partitions)
        if as_json:
            output.emit_json(_description_json(grown, every_config=False))
        else:
            count = output.format_count(grown.summary.partitions, "partition")
            output.message(f"{name} has {count} now")
        return
    changed = topics.configure_topic(bootstrap, name, set_values=values, unset=names)
    touched = [config for config in changed.configs if config.name in {*values, *names}]
    if as_json:
        output.emit_json([_config_json(config) for config in touched])
        return
    _emit_configs(touched)


@app.command("trim", epilog=_TRIM_EXAMPLES)
def trim(
    name: Name,
    *,
    before: Annotated[
        int | None,
        typer.Option("--before", min=0, metavar="OFFSET", help="Delete records below this offset."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Delete every record that is there now.")
    ] = False,
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition",
            "-p",
            min=0,
            metavar="N",
            help="Only this one; repeatable.  [default: all]",
        ),
    ] = None,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Output = Format.TABLE,
    json: Json = False,
) -> None:
    """Delete the oldest records of a topic, or all of them; the topic stays.

    Asks first; where there is no terminal to ask on, it needs --yes. Disk space comes back as
    soon as whole segment files hold nothing else, which with --all they do at once.
    """
    from penstock.client import topics  # noqa: PLC0415 -- keeps --help fast

    operation = f"cannot trim {name}"
    if everything == (before is not None):
        cause = "it is not clear what to delete"
        raise UsageError(operation, cause, "use --before OFFSET or --all, one of the two")
    if not yes:
        check_can_ask(operation, "it cannot be undone")
    plan = topics.plan_trim(bootstrap, name, partitions=partition or (), before=before)
    if not yes:
        count = output.format_count(sum(one.offsets for one in plan), "record")
        typer.confirm(f"delete {count} of {name}?", abort=True, err=True)
    starts = topics.trim_topic(bootstrap, name, plan)
    if wants_json(output_format, json):
        output.emit_json([_trim_json(one, starts[one.partition]) for one in plan])
        return
    output.emit_table(
        {"PARTITION": ">", "DELETED": "<", "EARLIEST": ">", "LATEST": ">"},
        [(one.partition, _deleted(one), starts[one.partition], one.latest) for one in plan],
    )


def _deleted(trimmed: Trim) -> str | None:
    if not trimmed.offsets:
        return None
    return f"{trimmed.earliest} to {trimmed.before - 1}"


def _check_changes(
    name: str, values: dict[str, str], names: list[str], partitions: int | None
) -> None:
    operation = f"cannot configure topic {name}"
    if not (values or names or partitions):
        remedy = "use --set NAME=VALUE, --unset NAME or --partitions N"
        raise UsageError(operation, "there is nothing to change", remedy)
    if both := sorted(set(values) & set(names)):
        raise UsageError(operation, f"{both[0]} is to be set and unset", "use one of the two")
    if partitions and (values or names):
        cause = "partitions and values cannot change in one step"
        raise UsageError(operation, cause, "use --partitions in a command of its own")


def _confirm(topic: TopicDescription) -> None:
    records = sum((one.latest or 0) - (one.earliest or 0) for one in topic.partitions)
    question = f"delete {topic.summary.name} with {output.format_count(records, 'record')}?"
    typer.confirm(question, abort=True, err=True)


def _emit_partitions(partitions: list[PartitionState]) -> None:
    columns = {"PARTITION": ">", "LEADER": ">", "REPLICAS": "<", "IN SYNC": "<"}
    columns |= {"EARLIEST": ">", "LATEST": ">"}
    output.emit_table(
        columns,
        [
            (
                one.index,
                one.leader if one.leader >= 0 else None,
                ",".join(map(str, one.replicas)),
                ",".join(map(str, one.in_sync)),
                one.earliest,
                one.latest,
            )
            for one in partitions
        ],
    )


def _emit_configs(configs: list[ConfigValue]) -> None:
    output.emit_table(
        {"CONFIG": "<", "VALUE": "<", "FROM": "<"},
        [(config.name, config.value, config.source) for config in configs],
    )


def _summary_json(topic: TopicSummary) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": topic.id or None,
        "partition_count": topic.partitions,
        "replication_factor": topic.replication_factor,
        "internal": topic.internal,
    }


def _description_json(topic: TopicDescription, *, every_config: bool) -> dict[str, Any]:
    partitions = [
        {
            "partition": one.index,
            "leader": one.leader if one.leader >= 0 else None,
            "replicas": one.replicas,
            "in_sync": one.in_sync,
            "earliest": one.earliest,
            "latest": one.latest,
        }
        for one in topic.partitions
    ]
    configs = [one for one in topic.configs if every_config or one.source == "topic"]
    return _summary_json(topic.summary) | {
        "partitions": partitions,
        "configs": [_config_json(config) for config in configs],
    }


def _trim_json(trimmed: Trim, start: int) -> dict[str, Any]:
    return {
        "partition": trimmed.partition,
        "earliest_before": trimmed.earliest,
        "earliest": start,
        "latest": trimmed.latest,
    }


def _config_json(config: ConfigValue) -> dict[str, Any]:
    return {"name": config.name, "value": config.value, "from": config.source}
