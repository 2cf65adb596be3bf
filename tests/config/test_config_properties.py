"""Properties of generated configurations."""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from iris.config import (
    InvalidConfig,
    apply_defaults,
    config_values,
    dump_config,
    load_config,
    make_local_config,
    origins,
    scale_groups_of,
)
from iris.config.group_settings import PaceSettings
from iris.config.schema import ClusterConfig
from tests.strategies import examples

FEW = settings(max_examples=examples(30), deadline=None, print_blob=True)

#: What nonsense is made of.
KEYS = {
    "platform",
    "gcp",
    "local",
    "controller",
    "scale_groups",
    "defaults",
    "autoscaler",
    "type",
    "zones",
    "attributes",
    "resources",
}

texts = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=8).filter(
    lambda text: text[:1] != "-"
)
images = st.from_regex(r"([a-z0-9][a-z0-9./:@-]{0,8})?", fullmatch=True)
names = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True)
durations = st.one_of(
    st.integers(1, 10**6).map(lambda ms: f"{ms}ms"),
    st.integers(1, 10**5),
    st.floats(0.01, 10**4).map(lambda seconds: round(seconds, 2)),
    st.fixed_dictionaries(
        {"seconds": st.integers(1, 100)},
        optional={"minutes": st.floats(0, 9), "days": st.integers(0, 9)},
    ),
    st.sampled_from(["1h30m", "1d", "0.5s", "2m"]),
)
#: A ceiling must not be below what it limits.
delays = {"backoff", "max_backoff", "stockout_delay", "max_stockout_delay"}
pace = {
    key: durations
    for key, field in PaceSettings.model_fields.items()
    if "minute" not in key and key not in delays
}
sizes = st.one_of(
    st.integers(1, 2**44),
    st.integers(1, 4096).map("{}m".format),
    st.sampled_from(["1.5t", "8g", "8GiB"]),
)
attributes = st.dictionaries(
    st.from_regex(r"[a-z][a-z0-9./_-]{0,5}", fullmatch=True),
    st.one_of(
        texts,
        st.integers(-(10**17), 10**17),
        st.booleans(),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    max_size=3,
)
resources = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.one_of(st.integers(1, 900), st.sampled_from([0.5, "1500m", "2"])),
        "memory": sizes,
        "disk": sizes,
    },
)
anything = {
    **pace,
    "scale_ups_per_minute": st.integers(1, 99),
    "boot_timeout": durations,
    "preemptible": st.booleans(),
    "priority": st.integers(-9, 999),
    "accept_cpu_jobs": st.booleans(),
    "attributes": attributes,
    "min_slices": st.integers(0, 2),
    "buffer_slices": st.integers(0, 2),
}


def group(
    type_: str, needed: dict[str, Any], optional: dict[str, Any]
) -> st.SearchStrategy[dict[str, Any]]:
    always = {"type": st.just(type_), **needed}
    return st.fixed_dictionaries(
        always,
        optional={key: each for key, each in (anything | optional).items() if key not in always},
    )


tpus = group(
    "tpu_vm",
    {
        "accelerator_variant": st.sampled_from(["v5litepod-16", "v5e-8", "v6e-1", "v4-16"]),
        "max_slices": st.integers(2, 9),
    },
    {"runtime_version": names, "zones": st.just(["us-west4-a"]), "resources": resources},
)
machines = group(
    "gce_vm",
    {"machine_type": st.just("c3-highmem-176"), "max_slices": st.integers(2, 9)},
    {"resources": st.just({"cpu": 1})},
)
pools = group(
    "manual_vm",
    {"hosts": st.just([]), "max_slices": st.just(2)},
    {"ssh_user": names, "resources": resources},
)


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    """What a file on Google Cloud may say."""
    scale_groups = draw(st.dictionaries(names, st.one_of(tpus, machines, pools), max_size=3))
    for name, each in scale_groups.items():
        if each["type"] == "manual_vm":
            each["hosts"] = [f"{name}-{number}" for number in range(2)]
    tree: dict[str, Any] = {
        "platform": {"gcp": {"project_id": "my-project", "default_zones": ["europe-west4-b"]}},
        "controller": {"image": "i", "bundle_prefix": "gs://b"},
        "scale_groups": scale_groups,
    }
    if draw(st.booleans()):
        tree["defaults"] = {"autoscaler": draw(st.fixed_dictionaries({}, optional=pace))}
    if draw(st.booleans()):
        tree["bootstrap"] = {"image": draw(images), "env_vars": {"A": draw(texts)}}
    return tree


@FEW
@given(configs())
def test_every_dumped_configuration_loads_as_the_same(tree: dict[str, Any]) -> None:
    """No duration, size or text may change on the way to the control plane."""
    loaded = load_config(yaml.safe_dump(tree))

    assert load_config(dump_config(loaded)) == loaded
    assert load_config(dump_config(loaded, complete=True)) == loaded
    assert ClusterConfig.model_validate_json(loaded.model_dump_json()) == loaded
    assert apply_defaults(loaded) == loaded


@FEW
@given(configs())
def test_every_written_key_is_dumped(tree: dict[str, Any]) -> None:
    """Zero, false and the empty text included: the dump has exactly the keys of the file."""
    loaded = load_config(yaml.safe_dump(tree))

    assert leaves(config_values(loaded)) == leaves(tree)
    assert {path for path, origin in origins(loaded).items() if origin == "set in file"} == leaves(
        tree
    )
    for name, said in tree["scale_groups"].items():
        for key in ("preemptible", "priority", "min_slices", "buffer_slices", "attributes"):
            assert key not in said or getattr(loaded.scale_groups[name], key) == said[key]


@FEW
@given(configs())
def test_every_local_conversion_is_a_valid_configuration(tree: dict[str, Any]) -> None:
    """`--local` takes any file, and writes its result to a file, too."""
    loaded = load_config(yaml.safe_dump(tree))
    local = make_local_config(loaded)

    assert load_config(dump_config(local)) == local
    assert [each.resources for each in scale_groups_of(local)] == [
        each.resources for each in scale_groups_of(loaded)
    ]
    assert [each.hosts for each in scale_groups_of(local)] == [
        each.hosts for each in scale_groups_of(loaded)
    ]


@settings(max_examples=examples(100), deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | texts,
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(st.sampled_from([*KEYS]) | texts, inner, max_size=3)
        ),
        max_leaves=12,
    )
)
def test_nonsense_is_refused_with_a_list_of_problems(tree: Any) -> None:
    """The answer to any input is a list of problems, never a traceback."""
    text = yaml.safe_dump({"platform": {"local": {}}, **tree} if isinstance(tree, dict) else tree)
    assert all(": " in problem or problem.startswith("the ") for problem in problems(text))


@pytest.mark.parametrize(
    "text",
    [
        "a: !!bool maybe",
        "a: !!int ''",
        "a: !!timestamp soon",
        "a: !!float x",
        "a: 2026-13-45",
        "[" * 5000,
    ],
)
def test_unreadable_yaml_is_refused_with_a_list_of_problems(text: str) -> None:
    """PyYAML raises a KeyError for some of these."""
    assert problems(text)


def problems(text: str) -> tuple[str, ...]:
    try:
        load_config(text)
    except InvalidConfig as error:
        return error.problems
    return ()


def leaves(tree: dict[str, Any], above: str = "") -> set[str]:
    """The paths of everything that is a value: durations and the like may be mappings, too."""
    found: set[str] = set()
    for key, value in tree.items():
        path = f"{above}{key}"
        section = key in (
            "platform",
            "gcp",
            "controller",
            "defaults",
            "autoscaler",
            "bootstrap",
            "scale_groups",
            "resources",
        )
        if isinstance(value, dict) and (section or above == "scale_groups."):
            found |= leaves(value, f"{path}.")
        else:
            found.add(path)
    return found


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [*a]",
        "platform: &p {gcp: *p}",
        "scale_groups: &g {a: *g}",
        "defaults: &d {defaults: *d}",
    ],
)
def test_a_file_that_contains_itself_is_refused(text: str) -> None:
    """YAML can express such a file; it must not cause an endless loop."""
    with pytest.raises(InvalidConfig):
        load_config(text)
