"""What a job may demand of a host, how people write it, and which hosts meet it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from iris.model.errors import InvalidValue
from iris.model.host.constraints import (
    DEVICE_TYPE,
    DEVICE_VARIANT,
    GPU_MEMORY,
    GPU_MODEL,
    HOST_ID,
    PREEMPTIBLE,
    REGION,
    SCALE_GROUP,
    TPU_NAME,
    TPU_TOPOLOGY,
    TPU_VM_COUNT,
    TPU_WORKER_ID,
    ZONE,
    Attribute,
    Constraint,
    Operator,
    parse_attribute,
    parse_constraint,
    preemptible_constraint,
    region_constraint,
    written,
    zone_constraint,
)
from iris.model.host.hosts import Host
from iris.model.slice.scale_groups import ScaleGroup
from tests.builders import a_host, a_request
from tests.scaling_world import a_group
from tests.strategies import CHEAP

NUMBERS = st.integers(-(10**18) + 1, 10**18 - 1) | st.floats(allow_nan=False, allow_infinity=False)
#: Strings of every kind, and strings that look like values of other types.
STRINGS = st.text(max_size=8) | st.sampled_from(
    ["true", "False", "4", "-0.5", "1e5", "007", "a, b", "(a)", '"a"', " a ", "", "\\", "=x"]
)
KEYS = st.from_regex(r"[a-zA-Z0-9][a-zA-Z0-9._/-]{0,8}", fullmatch=True) | st.sampled_from(
    ["in", "exists", "absent", REGION]
)


@st.composite
def constraints(draw: st.DrawFn) -> Constraint:
    """Any constraint that can be built."""
    op = draw(st.sampled_from(Operator))
    match op:
        case Operator.EXISTS | Operator.NOT_EXISTS:
            values: tuple[Attribute, ...] = ()
        case Operator.GT | Operator.GE | Operator.LT | Operator.LE:
            values = (draw(NUMBERS),)
        case Operator.IN:
            values = tuple(
                draw(st.lists(STRINGS | NUMBERS | st.booleans(), min_size=1, max_size=3))
            )
        case _:
            values = (draw(STRINGS | NUMBERS | st.booleans()),)
    return Constraint(key=draw(KEYS), op=op, values=values, preferred=draw(st.booleans()))


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types: to Python `1 == True == 1.0`."""
    return bool(one == other) and [type(value) for value in one.values] == [
        type(value) for value in other.values
    ]


@CHEAP
@given(constraints())
def test_a_constraint_as_shown_can_be_typed_in_again(constraint: Constraint) -> None:
    """A refusal quotes the constraint that excluded the most hosts; pasted into the next submission
    it must exclude the same.
    """
    assert same(constraint, parse_constraint(str(constraint), preferred=constraint.preferred))


@CHEAP
@given(constraints())
def test_a_constraint_survives_json_with_the_types_of_its_values(constraint: Constraint) -> None:
    """It travels to the scheduler as JSON; `true` that arrived as `1` would match no host."""
    assert same(constraint, Constraint.model_validate_json(constraint.model_dump_json()))


@CHEAP
@given(st.dictionaries(KEYS, STRINGS | NUMBERS | st.booleans(), max_size=3))
def test_the_attributes_of_a_host_survive_json_with_their_types(
    attributes: dict[str, Attribute],
) -> None:
    """The other side of the comparison takes the same journey."""
    host = Host.model_validate_json(a_host(attributes=attributes).model_dump_json())

    assert attributes == host.attributes
    assert [type(value) for value in attributes.values()] == [
        type(value) for value in host.attributes.values()
    ]


#: Values that Python takes for the same, and what people write for them.
ALIKE: list[list[Attribute]] = [[True, 1, 1.0, "1", "true"], [False, 0, 0.0, "0", "false"]]


@pytest.mark.parametrize("values", ALIKE)
def test_constraints_and_shapes_that_differ_in_the_kind_of_a_value_are_different(
    values: list[Attribute],
) -> None:
    """To Python `True == 1 == 1.0`: in one line of the queue, the second would be judged by the
    first one's demand.
    """
    different = [Constraint(key="fast", values=(value,)) for value in values]
    shapes = {a_request(constraints=(each,)).shape for each in different}

    assert len(set(different)) == len(shapes) == len(values)
    assert len({(each,): None for each in different}) == len(values)
    assert all((one == other) == (one is other) for one in different for other in different)


@pytest.mark.parametrize("values", ALIKE)
def test_hosts_and_groups_that_differ_in_the_kind_of_a_value_are_different(
    values: list[Attribute],
) -> None:
    """A configuration or a report with `true` in the place of `1` says something new."""
    hosts = [a_host(attributes={"fast": value}) for value in values]
    groups = [a_group(attributes={"fast": value}) for value in values]

    assert all((one == other) == (one is other) for one in hosts for other in hosts)
    assert all((one == other) == (one is other) for one in groups for other in groups)
    assert hosts == [Host.model_validate_json(host.model_dump_json()) for host in hosts]
    assert groups == [ScaleGroup.model_validate_json(group.model_dump_json()) for group in groups]


@CHEAP
@given(STRINGS | NUMBERS | st.booleans())
def test_an_attribute_as_written_is_read_as_the_same_value(value: Attribute) -> None:
    """An agent gets its attributes on its command line. If the text `"true"` became a boolean
    there, the autoscaler would create slices for ever for a gang that none of their hosts accepts.
    """
    read = parse_attribute(written(value))

    assert (type(value), value) == (type(read), read)


@pytest.mark.parametrize(
    ("text", "constraint", "shown"),
    [
        ("region=us-west4", Constraint(key="region", values=("us-west4",)), "region = us-west4"),
        (
            " region == us-west4 ",
            Constraint(key="region", values=("us-west4",)),
            "region = us-west4",
        ),
        ("zone!=x", Constraint(key="zone", op=Operator.NE, values=("x",)), "zone != x"),
        (
            "tpu-vm-count>=4",
            Constraint(key="tpu-vm-count", op=Operator.GE, values=(4,)),
            "tpu-vm-count >= 4",
        ),
        (
            "tpu-vm-count > 4",
            Constraint(key="tpu-vm-count", op=Operator.GT, values=(4,)),
            "tpu-vm-count > 4",
        ),
        ("load<=0.5", Constraint(key="load", op=Operator.LE, values=(0.5,)), "load <= 0.5"),
        ("load<-1", Constraint(key="load", op=Operator.LT, values=(-1,)), "load < -1"),
        (
            "region in (a, b)",
            Constraint(key="region", op=Operator.IN, values=("a", "b")),
            "region in (a, b)",
        ),
        (
            "region in a,b",
            Constraint(key="region", op=Operator.IN, values=("a", "b")),
            "region in (a, b)",
        ),
        ("region IN(a)", Constraint(key="region", op=Operator.IN, values=("a",)), "region in (a)"),
        (
            "n in (4, true, 0.5)",
            Constraint(key="n", op=Operator.IN, values=(4, True, 0.5)),
            "n in (4, true, 0.5)",
        ),
        ("gpu exists", Constraint(key="gpu", op=Operator.EXISTS), "gpu exists"),
        ("gpu", Constraint(key="gpu", op=Operator.EXISTS), "gpu exists"),
        ("spot absent", Constraint(key="spot", op=Operator.NOT_EXISTS), "spot absent"),
        ("!spot", Constraint(key="spot", op=Operator.NOT_EXISTS), "spot absent"),
        ("preemptible=True", Constraint(key="preemptible", values=(True,)), "preemptible = true"),
        ('version="4"', Constraint(key="version", values=("4",)), 'version = "4"'),
        (
            'version="4, or \\"5\\""',
            Constraint(key="version", values=('4, or "5"',)),
            'version = "4, or \\"5\\""',
        ),
        ('pool=""', Constraint(key="pool", values=("",)), 'pool = ""'),
        (
            "example.com/rack_7=a=b",
            Constraint(key="example.com/rack_7", values=("a=b",)),
            "example.com/rack_7 = a=b",
        ),
        ("in in in", Constraint(key="in", op=Operator.IN, values=("in",)), "in in (in)"),
    ],
)
def test_a_constraint_is_read_as_people_write_it(
    text: str, constraint: Constraint, shown: str
) -> None:
    """Every notation in use, and the one in which Iris answers."""
    assert same(constraint, parse_constraint(text))
    assert shown == str(constraint)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "=x",
        "region=",
        "region=us west",
        "region=>4",
        "region===x",
        "region=<x",
        "region=a)",
        'region="a',
        'region="\\q"',
        "region=\udcff",
        'region="\\ud800"',
        "-region=x",
        "régime=x",
        "two words=x",
        "a,b=c",
        "region in",
        "region in ()",
        "region in (a",
        "region in (a,)",
        "region not in (a)",
        "region missing",
        "!region exists",
        "!region=x",
        "count>many",
        "count>=true",
        'count>"4"',
        "count>",
        pytest.param("x" * 5000 + " y", id="5000 letters"),
        pytest.param("count>" + "9" * 5000, id="5000 digits"),
    ],
)
def test_what_is_no_constraint_is_refused_with_an_example(text: str) -> None:
    """A demand that was read as another one would wait for ever, or run where it must not."""
    with pytest.raises(InvalidValue, match=r'(?s)^constraint: .*; .*"'):
        parse_constraint(text)


def test_a_list_behind_an_equals_sign_is_refused_with_what_to_write_instead() -> None:
    """ "region=a,b" is what people try first, and as one string it would match no host at all."""
    with pytest.raises(InvalidValue, match=r'write "region in \(a,b\)"$'):
        parse_constraint("region=a,b")


@pytest.mark.parametrize(
    ("key", "op", "values"),
    [
        ("", Operator.EXISTS, ()),
        ("two words", Operator.EXISTS, ()),
        ("a=b", Operator.EXISTS, ()),
        ("gpu", Operator.EXISTS, ("x",)),
        ("gpu", Operator.NOT_EXISTS, (True,)),
        ("zone", Operator.EQ, ()),
        ("zone", Operator.EQ, ("a", "b")),
        ("zone", Operator.NE, ()),
        ("zone", Operator.NE, ("a", "b")),
        ("zone", Operator.IN, ()),
        ("count", Operator.GT, ()),
        ("count", Operator.GT, (1, 2)),
        ("count", Operator.GE, ("4",)),
        ("count", Operator.LT, (True,)),
        ("count", Operator.LE, (float("nan"),)),
        ("count", Operator.EQ, (float("inf"),)),
        ("count", Operator.EQ, (10**18,)),
    ],
)
def test_an_impossible_constraint_cannot_be_built(
    key: str, op: Operator, values: tuple[Attribute, ...]
) -> None:
    """However it is made, `holds` may rely on it."""
    with pytest.raises(ValidationError) as error:
        Constraint(key=key, op=op, values=values)

    (problem,) = error.value.errors()
    assert isinstance(problem["ctx"]["error"], InvalidValue)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("4", 4),
        ("-4", -4),
        (" 4 ", 4),
        ("0", 0),
        ("0.5", 0.5),
        (".5", 0.5),
        ("-1.50", -1.5),
        ("1e5", 1e5),
        ("1E-3", 1e-3),
        ("007", "007"),
        ("1_000", "1_000"),
        ("٤", "٤"),
        ("nan", "nan"),
        ("inf", "inf"),
        ("1e999", "1e999"),
        ("1.2.3", "1.2.3"),
        ("1234567890123456789", "1234567890123456789"),
        ("yes", "yes"),
        ("", ""),
        ('"true"', "true"),
        ('"4"', "4"),
        ('"a \\"b\\""', 'a "b"'),
        ('"', '"'),
        ('"a" b', '"a" b'),
        ("us-west4", "us-west4"),
    ],
)
def test_an_attribute_is_a_number_or_truth_value_where_it_reads_as_one(
    text: str, value: Attribute
) -> None:
    """Flags are text; what would lose a digit or a zero as a number stays text."""
    parsed = parse_attribute(text)

    assert (type(value), value) == (type(parsed), parsed)


ATTRIBUTES: dict[str, Attribute] = {
    "region": "US-West4",
    "count": 4,
    "load": 0.5,
    "spot": True,
    "version": "4",
    "off": False,
}


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("region = us-west4", True),
        ("region = us-west", False),
        ("region != us-west4", False),
        ("region != us-east1", True),
        ("region in (us-east1, us-west4)", True),
        ("region in (us-east1)", False),
        ("region exists", True),
        ("region absent", False),
        ("region > 4", False),
        ("region < 4", False),
        ("count = 4", True),
        ("count = 4.0", True),
        ('count = "4"', False),
        ('count != "4"', True),
        ("count > 4", False),
        ("count > 3.9", True),
        ("count >= 4", True),
        ("count < 4", False),
        ("count < 5", True),
        ("count <= 4", True),
        ("count <= 3", False),
        ("load <= 1", True),
        ("load in (1, 0.5)", True),
        ("version = 4", False),
        ('version = "4"', True),
        ("version >= 4", False),
        ("spot = true", True),
        ("spot = false", False),
        ("spot = 1", False),
        ('spot = "true"', False),
        ("spot != 1", True),
        ("spot != true", False),
        ("spot in (1, true)", True),
        ("spot >= 1", False),
        ("spot exists", True),
        ("off exists", True),
        ("off absent", False),
        ("off = 0", False),
        ("off = false", True),
    ],
)
def test_a_constraint_compares_like_with_like(text: str, met: bool) -> None:
    """Numbers with numbers, truth with truth, strings without regard to case; between kinds nothing
    is equal or in order.
    """
    assert parse_constraint(text).holds(ATTRIBUTES) is met


@CHEAP
@given(constraints())
def test_what_a_host_does_not_say_it_does_not_meet(constraint: Constraint) -> None:
    """Not even "zone != x": a host of unknown zone may well be in it. Only what must be absent
    is.
    """
    assert constraint.holds({}) is (constraint.op is Operator.NOT_EXISTS)


def test_truth_and_one_make_different_constraints() -> None:
    """To Python they are equal; the scheduler groups requests by their constraints and must not mix
    these two.
    """
    truth, one = Constraint(key="spot", values=(True,)), Constraint(key="spot", values=(1,))

    assert truth != one
    assert len({truth, one, Constraint(key="spot", values=(True,))}) == 2
    assert truth != "spot = true"


def test_a_preference_is_another_constraint_than_the_demand() -> None:
    """They read alike, but one of them may be broken."""
    demand, wish = parse_constraint("region=a"), parse_constraint("region=a", preferred=True)

    assert demand != wish
    assert str(demand) == str(wish)


def test_a_job_may_run_in_any_of_several_regions() -> None:
    """One region reads as a plain demand, also when it is named twice."""
    assert str(region_constraint(["us-west4", "us-east1"])) == "region in (us-west4, us-east1)"
    assert str(region_constraint(["us-west4", "us-west4"])) == "region = us-west4"


def test_a_single_string_is_not_a_list_of_regions() -> None:
    """It would be taken letter by letter, and match nothing, silently."""
    with pytest.raises(TypeError, match="us-west4"):
        region_constraint("us-west4")


@pytest.mark.parametrize("regions", [[], [""], ["us-west4", " "]])
def test_no_region_is_not_a_choice(regions: list[str]) -> None:
    """A variable that was empty must not become a job that waits for ever."""
    with pytest.raises(InvalidValue, match=r"^region: "):
        region_constraint(regions)


def test_zone_and_preemptibility_have_the_keys_that_hosts_have() -> None:
    """Both ends take the key from one constant."""
    assert zone_constraint("us-west4-a").holds({ZONE: "us-west4-a"})
    assert preemptible_constraint(False).holds({PREEMPTIBLE: False})
    assert not preemptible_constraint(False).holds({PREEMPTIBLE: True})
    with pytest.raises(InvalidValue, match=r"^zone: "):
        zone_constraint("")


def test_the_keys_of_a_slice_keep_their_names() -> None:
    """Hosts in the field carry these, and jobs name them; renaming a constant must not rename
    them.
    """
    keys = (REGION, ZONE, PREEMPTIBLE, DEVICE_TYPE, DEVICE_VARIANT, GPU_MODEL, GPU_MEMORY)
    of_slices = (TPU_NAME, TPU_WORKER_ID, TPU_TOPOLOGY, TPU_VM_COUNT, SCALE_GROUP, HOST_ID)
    assert " ".join(parse_constraint(key).key for key in keys + of_slices) == (
        "region zone preemptible device-type device-variant gpu-model gpu-memory-gib tpu-name"
        " tpu-worker-id tpu-topology tpu-vm-count scale-group host-id"
    )
