"""What workflows, activities and clients send to each other arrives as it was sent."""

import asyncio
import inspect
import types
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cached_property
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import AwareDatetime, BaseModel
from temporalio.converter import DataConverter

from iris.client.connect.plugin import IrisPlugin
from iris.messages import autoscaler, job, scheduler, slice, task, wire
from iris.messages.scheduler import Ask, Batch, Envelope, Message
from iris.messages.slice import SliceInput
from iris.model.host.constraints import Attribute, Constraint, Operator, preemptible_constraint
from iris.model.host.hosts import Host
from iris.model.host.idle_gpus import StopIdle
from iris.model.host.resources import Device, DeviceKind, Resources
from iris.model.job import attempts, requests, spec
from iris.model.job import status as job_status
from iris.model.job.arrays import Array
from iris.model.job.bundles import Bundle
from iris.model.job.environments import EnvironmentSpec
from iris.model.job.spec import Coscheduling, JobSpec
from iris.model.slice import scaling
from iris.model.slice import status as slices
from iris.scheduling.ledger import recovery
from iris.scheduling.ledger.codec import LedgerState
from iris.scheduling.placement import refusals
from iris.scheduling.reasons import forecast
from tests.builders import a_request, a_spec
from tests.strategies import CHEAP, examples

MESSAGES = (autoscaler, job, scheduler, slice, task, wire)
MODULES = (
    *MESSAGES,
    forecast,
    requests,
    spec,
    attempts,
    job_status,
    refusals,
    recovery,
    scaling,
    slices,
)
MODELS = sorted(
    {
        found
        for module in MODULES
        for found in vars(module).values()
        if inspect.isclass(found)
        and issubclass(found, BaseModel)
        and found.__module__.startswith("iris.")
    },
    key=lambda model: f"{model.__module__}.{model.__name__}",
)

#: There are many messages, and the largest of them have hundreds of values.
FEW = settings(CHEAP, max_examples=examples(20), suppress_health_check=list(HealthCheck))
#: The members of unions: each is tried inside its union, too.
TO_SCHEDULER = get_args(get_args(Message)[0])
REPORTS = get_args(get_args(SliceInput.model_fields["reports"].annotation)[0])

WORDS = st.sampled_from(["", "a", "true", "1", "1.0", "ü", 'q"'])
#: Values that are equal to Python although they are of different kinds, and some others.
VALUES = st.sampled_from([True, 1, 1.0, "1", "true", False, 0, 0.0, "0", -0.5, 10**17, "x"])
CONSTRAINTS = st.builds(
    Constraint,
    key=st.sampled_from(["a", "b"]),
    op=st.just(Operator.IN),
    values=st.lists(VALUES, min_size=1, max_size=3).map(tuple),
) | st.builds(
    Constraint,
    key=st.just("a"),
    op=st.sampled_from([Operator.EQ, Operator.NE]),
    values=st.tuples(VALUES),
)
#: Of models that not every value suits.
MADE: dict[type, st.SearchStrategy[Any]] = {
    Constraint: CONSTRAINTS,
    Bundle: st.just(Bundle(sha256="0" * 64, size=1)),
    EnvironmentSpec: st.just(EnvironmentSpec()),
    StopIdle: st.builds(
        StopIdle,
        after=st.integers(60, 10**6).map(lambda seconds: timedelta(seconds=seconds)),
        below=st.sampled_from([0.5, 5.0, 100.0]),
        only_warns=st.booleans(),
    ),
    Array: st.builds(
        Array,
        indices=st.sampled_from(["0-9", "3,17"]),
        size=st.integers(1, 20),
        columns=st.tuples(WORDS),
    ),
    Device: st.builds(
        Device, kind=st.sampled_from(DeviceKind), variant=WORDS, count=st.integers(1, 4)
    ),
    Resources: st.builds(
        Resources,
        cpu_millis=st.integers(0, 2**40),
        memory_bytes=st.integers(0, 2**40),
        device=st.none()
        | st.builds(
            Device, kind=st.sampled_from(DeviceKind), variant=WORDS, count=st.integers(1, 4)
        ),
    ),
    JobSpec: st.builds(
        a_spec,
        constraints=st.lists(CONSTRAINTS, max_size=2).map(tuple),
        coscheduling=st.none() | st.just(Coscheduling(group_by="a")),
        env=st.dictionaries(st.sampled_from(["A", "B"]), WORDS, max_size=2),
    ),
    # What is in its tables is the subject of tests/scheduling/ledger/test_codec.py.
    LedgerState: st.just(LedgerState()),
}
TIMES = st.integers(0, 10**9).map(
    lambda micros: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: WORDS,
    int: st.integers(1, 10**9),
    bool: st.booleans(),
    float: st.sampled_from([0.0, 1.0, 2.5]),
    datetime: TIMES,
    AwareDatetime: TIMES,
    timedelta: st.integers(20, 10**6).map(lambda seconds: timedelta(seconds=seconds)),
    type(None): st.none(),
    Attribute: VALUES,
}


def anything(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type as messages use them."""
    if kind in PLAIN:
        return PLAIN[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return anything(arguments[0])
    if origin in (Union, types.UnionType):
        return st.one_of(*map(anything, arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple and arguments[-1] is ...:
        return st.lists(anything(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(anything, arguments))
    if origin is list:
        return st.lists(anything(arguments[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(*map(anything, arguments), max_size=2)
    if issubclass(kind, Enum):
        return st.sampled_from(kind)
    if issubclass(kind, BaseModel):
        return MADE[kind] if kind in MADE else st.deferred(lambda: _fields_of(kind))
    # A named tuple.
    return st.builds(kind, **{name: anything(each) for name, each in get_type_hints(kind).items()})


def _fields_of(model: type[BaseModel]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(model, include_extras=True)
    return st.builds(model, **{name: anything(hints[name]) for name in model.model_fields})


def warm(value: Any) -> None:
    """Evaluate every cached property of every model in the value."""
    if isinstance(value, BaseModel):
        for name, _ in inspect.getmembers(
            type(value), lambda found: isinstance(found, cached_property)
        ):
            getattr(value, name)
            assert name in vars(value), "it is not kept: nothing is tested"
        for name in type(value).model_fields:
            warm(getattr(value, name))
    elif isinstance(value, dict):
        warm(list(value.values()))
    elif isinstance(value, list | tuple):
        for each in value:
            warm(each)


def spelled(value: Any) -> Any:
    """The value with the kinds of all its parts, for comparing: to Python `True == 1 == 1.0`."""
    if isinstance(value, BaseModel):
        # Others stay with the client.
        sent = (name for name, field in type(value).model_fields.items() if not field.exclude)
        return type(value), {name: spelled(getattr(value, name)) for name in sent}
    if isinstance(value, dict):
        return dict, {key: spelled(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [spelled(each) for each in value]
    return type(value), value


def travelled(value: Any, converter: DataConverter) -> Any:
    """The value as it arrives, through the converter that all clients and workers have."""

    async def travel() -> Any:
        return (await converter.decode(await converter.encode([value]), [type(value)]))[0]

    return asyncio.run(travel())


@pytest.fixture(scope="module")
def converter() -> DataConverter:
    found = IrisPlugin().data_converter
    assert isinstance(found, DataConverter)
    return found


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
@FEW
@given(data=st.data())
def test_every_message_arrives_with_the_kinds_of_all_its_values(
    model: type[BaseModel], converter: DataConverter, data: st.DataObject
) -> None:
    """Whatever has been worked out from it before it was sent: `preemptible = true` that arrives as
    `preemptible = 1` matches no host, and `preemptible != 1` matches all of them.
    """
    sent = data.draw(anything(model))
    warm(sent)

    assert spelled(travelled(sent, converter)) == spelled(sent)


@pytest.mark.parametrize("member", [*TO_SCHEDULER, *REPORTS], ids=lambda model: model.__name__)
@FEW
@given(data=st.data())
def test_every_member_of_a_union_arrives_with_the_kinds_of_all_its_values(
    member: type[BaseModel], converter: DataConverter, data: st.DataObject
) -> None:
    """A union has a serializer of its own, which tries those of its members in ways that they are
    never used alone.
    """
    part = data.draw(anything(member))
    wholes: list[BaseModel] = []
    if member in TO_SCHEDULER:
        wholes += [Envelope(message=part), Batch(messages=(part, part))]
    if member in REPORTS:
        wholes.append(SliceInput(cluster="c", id="s", reports=(part, part)))
    warm(wholes)

    assert [spelled(travelled(whole, converter)) for whole in wholes] == [
        spelled(whole) for whole in wholes
    ]


def test_what_a_request_demands_is_the_same_after_its_shape_was_worked_out(
    converter: DataConverter,
) -> None:
    """The shortest way to lose a truth value: a retry asks with a request of which the shape is
    known.
    """
    request = a_request(constraints=(preemptible_constraint(True),))
    warm(request)
    arrived = travelled(Envelope(message=Ask(request=request)), converter)

    assert arrived.message.request.constraints[0].values == (True,)
    assert arrived.message.request.constraints[0].holds({"preemptible": True})


def test_every_model_that_keeps_what_it_has_worked_out_is_among_the_messages_that_are_tried() -> (
    None
):
    """What is not reached from a message of this list is not covered by the tests above."""
    keeping = {
        model.__name__
        for model in MODELS
        if any(isinstance(each, cached_property) for each in vars(model).values())
    }

    assert keeping == {"Constraint", "Placement", "Request", "Resources"}
    assert Host in MODELS
