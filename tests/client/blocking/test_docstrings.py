"""`help()` of what programs use: each method says by itself what it does, takes and raises."""

import inspect
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import pytest

import iris
from iris.client.blocking.generated.operations import Autoscaler, Cluster, Hosts, Schedules, Slices

#: Blocking classes that are written by hand, and their asynchronous twins.
TWINS: dict[type[Any], type[Any]] = {
    iris.WorkerPool: iris.AsyncWorkerPool,
    iris.ActorClient: iris.AsyncActorClient,
    iris.ActorPool: iris.AsyncActorPool,
}
OPERATIONS = (Hosts, Slices, Autoscaler, Cluster, Schedules)
MADE_BY_PROGRAMS = (*TWINS, iris.IrisClient, iris.Job)
ALONE = (
    iris.IrisClient,
    iris.AsyncIrisClient,
    iris.Job,
    iris.AsyncJob,
    iris.ActorServer,
    iris.ClusterManager,
    iris.Entrypoint,
    iris.JobContext,
    *OPERATIONS,
)
#: These raise nothing that their caller could handle.
SILENT = {"close", "shutdown", "stop", "from_callable", "from_command", "is_local"}
#: Of twins whose methods differ.
DIFFERENT = {
    "WorkerPool.submit",
    "WorkerPool.map",
    "ActorPool.broadcast",
    "ActorPool.endpoints",
}


def methods(kind: type[Any]) -> Iterator[tuple[str, Callable[..., Any], bool]]:
    """The public methods of a class, and whether each is read as an attribute."""
    ours = [each for each in kind.__mro__ if each.__module__.startswith("iris.")]
    for name in {name: None for each in ours for name in vars(each) if not name.startswith("_")}:
        value = inspect.getattr_static(kind, name)
        if isinstance(value, property | cached_property):
            read = value.fget if isinstance(value, property) else value.func
            assert read is not None
            yield name, read, True
        elif isinstance(value, classmethod | staticmethod):
            yield name, value.__func__, False
        elif inspect.isfunction(value):
            yield name, value, False


PROGRAMS_USE = (*TWINS, *TWINS.values(), *ALONE)


def sections(method: Callable[..., Any]) -> tuple[str, str, str]:
    """What a method does; its arguments; its errors."""
    doc = inspect.getdoc(method) or ""
    parts = re.split(r"^(Args|Raises|Returns):$", doc, flags=re.MULTILINE)
    named = dict(zip(parts[1::2], parts[2::2], strict=True))
    return parts[0].strip(), named.get("Args", ""), named.get("Raises", "")


@pytest.mark.parametrize("kind", PROGRAMS_USE)
def test_a_public_method_describes_itself(kind: type[Any]) -> None:
    """A reference to another method, as most had, sends the reader of `help()` away."""
    for name, method, is_attribute in methods(kind):
        does, arguments, errors = sections(method)

        assert does, name
        assert not does.startswith("As "), name
        if is_attribute:
            continue
        named = {*re.findall(r"^    \*{0,2}(\w+):", arguments, flags=re.MULTILINE)}
        assert {*inspect.signature(method).parameters} - {"self", "cls", "env"} <= named, name
        assert errors or method.__name__ in SILENT, name


@pytest.mark.parametrize("kind", OPERATIONS)
def test_an_attribute_of_the_client_is_described(kind: type[Any]) -> None:
    assert kind.__doc__


@pytest.mark.parametrize("kind", MADE_BY_PROGRAMS)
def test_the_making_of_an_object_is_described(kind: type[Any]) -> None:
    """`help(iris.WorkerPool)` begins with it."""
    does, arguments, _ = sections(kind.__init__)
    assert does
    assert not does.startswith("As ")
    assert all(f"{name}:" in arguments for name in inspect.signature(kind).parameters)


SHARED = [
    pytest.param(blocking, getattr(twin, name), id=f"{kind.__name__}.{name}")
    for kind, twin in TWINS.items()
    for name, blocking, is_attribute in methods(kind)
    if not is_attribute
    and callable(getattr(twin, name, None))
    and f"{kind.__name__}.{name}" not in DIFFERENT
]


@pytest.mark.parametrize(("blocking", "twin"), SHARED)
def test_a_blocking_method_says_the_same_as_its_twin(
    blocking: Callable[..., Any], twin: Callable[..., Any]
) -> None:
    """There are two texts for the reader's sake; one that is corrected alone would make the other
    wrong.
    """
    ours, theirs = (" ".join((inspect.getdoc(each) or "").split()) for each in (blocking, twin))

    assert ours == theirs.replace("Async", "")
