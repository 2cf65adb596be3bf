"""By what the retry of a parent knows the work of its children again, and never takes other work
for it.
"""

import functools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.client.build.child_digest import work_of_call, work_of_command
from iris.model.job.arrays import Array
from tests.builders import a_spec

ROOT = Path(__file__).parents[3]


def of_call(
    function: Callable[..., Any], *args: Any, env: Mapping[str, str] = os.environ, **kwargs: Any
) -> str:
    return work_of_call(function, args, kwargs, a_spec(), env)


def of_array(indices: str) -> str:
    return work_of_call(train, (), {}, a_spec(array=Array(indices=indices, size=1)), os.environ)


@dataclass
class Config:
    """As a program defines it for its functions."""

    lr: float
    path: Path = Path()


class Model:
    """Its text says nothing of its state, as that of most classes."""

    def __init__(self, layers: int) -> None:
        self.layers = layers

    def train(self) -> int:
        return self.layers

    def __call__(self) -> int:
        return self.layers


class Shortened:
    """A large array: its text has only its first and last numbers."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def __repr__(self) -> str:
        return f"[{self.numbers[0]} ... {self.numbers[-1]}]"


def train(config: Any, *, steps: int = 1) -> Any:
    return config, steps


def trainer(lr: float, kind: str = "default") -> Callable[..., Any]:
    """Functions of one name and code that differ in what they have with them."""
    if kind == "default":
        return lambda lr=lr: lr
    if kind == "keyword":
        return lambda *, lr=lr: lr
    if kind == "closure":
        return lambda: lr
    if kind == "inner":
        return lambda: trainer_of(lambda: lr)
    function = lambda: 0  # noqa: E731 - all are lambdas
    vars(function)["lr"] = lr
    return function


def trainer_of(function: Callable[..., Any]) -> Any:
    return function()


def a_class(lr: float) -> type:
    """As cloudpickle makes a class of the main program anew in the job: no module has it."""

    @dataclass
    class Local:
        seed: int
        rate = lr

        def train(self) -> float:
            return self.seed * lr

    return Local


def different(
    first: float, second: float
) -> dict[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    """Pairs of calls that only differ in these two numbers."""
    pairs: dict[str, Callable[[float], Callable[..., Any]]] = {
        "argument": lambda lr: functools.partial(of_call, train, Config(lr)),
        "option": lambda lr: functools.partial(of_call, train, Config(0.0), steps=lr),
        "state without a text": lambda lr: functools.partial(of_call, train, Model(lr)),  # type: ignore[arg-type]
        "text without its middle": lambda lr: functools.partial(
            of_call, train, Shortened(1, lr, 3)
        ),  # type: ignore[arg-type]
        "end of a long text": lambda lr: functools.partial(
            of_call, train, "x" * 2_000_000 + str(lr)
        ),
        "self": lambda lr: functools.partial(of_call, Model(lr).train),  # type: ignore[arg-type]
        "callable object": lambda lr: functools.partial(of_call, Model(lr)),  # type: ignore[arg-type]
        "partial": lambda lr: functools.partial(of_call, functools.partial(train, lr)),
        "option of a partial": lambda lr: functools.partial(
            of_call, functools.partial(train, steps=lr)
        ),
        "class": lambda lr: functools.partial(of_call, a_class(lr)(1).train),
        "function in a list": lambda lr: functools.partial(of_call, train, [trainer(lr)]),
        "variable": lambda lr: (
            lambda: work_of_call(train, (), {}, a_spec(env={"LR": str(lr)}), os.environ)
        ),
        "variable of a command": lambda lr: (
            lambda: work_of_command(["train"], a_spec(env={"LR": str(lr)}), os.environ)
        ),
        "indices of an array": lambda lr: lambda: of_array(str(round(lr * 10))),
        **{
            kind: lambda lr, kind=kind: functools.partial(of_call, trainer(lr, kind))
            for kind in ("default", "keyword", "closure", "inner", "attribute")
        },
    }
    return {name: (make(first), make(second)) for name, make in pairs.items()}


@pytest.mark.parametrize("name", different(0, 0))
def test_work_that_differs_in_one_number_is_other_work_wherever_the_number_is(name: str) -> None:
    """A program that goes on from a checkpoint would get the results of the calls that it skips."""
    first, second = different(0.1, 0.2)[name]
    again, _ = different(0.1, 0.2)[name]

    assert first() != second()
    assert first() == again()


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.floats(-1, 1, width=16)
    | st.text("ab/~$", max_size=3)
    | st.binary(max_size=3)
    | st.sampled_from([Path("a"), Path("/"), len, train, Config]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3)
        | st.sets(st.text("ab", max_size=2), max_size=3)
        | st.builds(Config, inner)
        | st.builds(Model, inner)
    ),
    max_leaves=4,
)


def described(value: Any) -> Any:
    """The value as a text from which all of it can be told."""
    if isinstance(value, list | tuple):
        return type(value).__name__, [described(each) for each in value]
    if isinstance(value, dict):
        return "dict", [(key, described(each)) for key, each in value.items()]
    if isinstance(value, set):
        return "set", sorted(value)
    if isinstance(value, Config | Model):
        return type(value).__name__, described(vars(value))
    return type(value).__name__, repr(value)


@given(values, values)
def test_two_arguments_are_the_same_work_if_and_only_if_they_are_equal(
    first: Any, second: Any
) -> None:
    """Both mistakes are bad: the wrong result, or a child that a retry runs a second time."""
    assert (of_call(train, first) == of_call(train, second)) == (
        described(first) == described(second)
    )


def test_what_cannot_be_compared_is_new_work_each_time() -> None:
    """Rather twice than the result of another one; whether it can be submitted at all is said
    elsewhere.
    """
    assert of_call(train, threading.Lock()) != of_call(train, threading.Lock())
    assert of_call(train, object()) == of_call(train, object()), "an address is no difference"


def test_the_directories_of_an_attempt_are_no_difference_but_which_of_them_it_is() -> None:
    """They are others in each attempt. A job that evaluates the output directory does not evaluate
    the checkpoints.
    """
    first, second = (
        {
            "IRIS_OUTPUT_DIR": f"/attempts/{number}/out",
            "IRIS_WORKDIR": f"/attempts/{number}/work",
            "HOME": "/root",
        }
        for number in (1, 2)
    )

    def works(env: Mapping[str, str], number: int) -> list[str]:
        paths = [
            f"/attempts/{number}/{part}"
            for part in ("out/model", "work/model", "out", "work", "outside")
        ]
        commands = [work_of_command(["eval", path], a_spec(), env) for path in paths]
        return commands + [
            of_call(train, kind(path), env=env) for path in paths for kind in (str, Path)
        ]

    these, those = works(first, 1), works(second, 2)
    assert len({*these}) == len(these)
    assert [this == that for this, that in zip(these, those, strict=True)] == [True] * 4 + [
        False
    ] + [True] * 8 + [False] * 2


PROGRAM = """
import os, sys
from dataclasses import dataclass
from pathlib import Path
from tests.client.build.test_child_digest import of_call

RATE = float(sys.argv[1])

@dataclass
class Setting:
    tags: frozenset
    path: Path

def scaled(setting):
    return [each for each in setting.tags if each in {"a", "b", "c"}], RATE

print(of_call(scaled, Setting(frozenset(map(str, range(20))), Path(os.environ["IRIS_WORKDIR"], "x"))))
"""


def test_a_program_that_runs_again_submits_the_same_work_with_its_own_functions_and_classes() -> (
    None
):
    """A retry is another process, on another host, in another directory, with sets in another
    order. What its functions use is passed with them, so it tells them apart.
    """

    def runs(attempt: int, rate: str) -> bytes:
        env = {
            **os.environ,
            "IRIS_WORKDIR": f"/attempts/{attempt}",
            "PYTHONHASHSEED": str(attempt),
            "PYTHONPATH": str(ROOT),
        }
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, rate], env=env, check=True, capture_output=True
        ).stdout

    assert runs(1, "0.1") == runs(2, "0.1") != runs(2, "0.2")
