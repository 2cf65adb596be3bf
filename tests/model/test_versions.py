"""Which versions fit, and what to do first if they do not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model.versions import FEATURES, release, remedy

HAS = dict.fromkeys(FEATURES, True)
VERSIONS = st.from_regex(r"[0-2]\.[0-2]\.[0-9](rc1|\.dev3)?", fullmatch=True)


@pytest.mark.parametrize(
    ("client", "control_planes", "agents", "todo"),
    [
        ("0.2.1", ["0.2.0"], {"0.2.5": ["h1"]}, ""),
        ("0.2.0", ["0.2.0"], {}, ""),
        # The control plane first, whatever else differs.
        (
            "0.2.0",
            ["0.1.4"],
            {"0.1.4": ["h1"]},
            (
                "restart the control plane with version 0.2.0, that of this client (`iris cluster"
                " restart`), or install version 0.1.4 here"
            ),
        ),
        (
            "0.2.0",
            [None],
            {},
            (
                "restart the control plane with version 0.2.0, that of this client (`iris cluster"
                " restart`)"
            ),
        ),
        (
            "0.2.0",
            ["0.1.0", "0.2.0"],
            {},
            "stop the control planes of version 0.1.0: one of version 0.2.0 runs beside them",
        ),
        # Then the agents, the oldest ones first.
        (
            "0.1.0",
            ["0.2.0"],
            {"0.2.0": ["h0"], "0.1.0": ["h9"], None: ["h5", "h4", "h3", "h2"]},
            (
                "restart the agents of h2, h3, h4 and 1 more with version 0.2.0, that of the"
                " control plane: theirs is unknown"
            ),
        ),
        (
            "0.2.0",
            ["0.2.0"],
            {"0.10.0": ["h1"]},
            (
                "restart the agents of h1 with version 0.2.0, that of the control plane: theirs is"
                " 0.10.0"
            ),
        ),
        # Then the client.
        (
            "0.1.0",
            ["0.2.0"],
            {"0.2.0": ["h1"]},
            "install version 0.2.0, that of the control plane, here",
        ),
    ],
)
def test_one_step_is_named_and_the_control_plane_comes_first(
    client: str, control_planes: list[str | None], agents: dict[str | None, list[str]], todo: str
) -> None:
    """A control plane reads what older agents and clients write; what newer ones write it may
    not.
    """
    assert remedy(client, control_planes, agents, "1.32.0", HAS) == todo


def test_a_temporal_service_without_a_feature_is_named_with_it() -> None:
    """Its version alone tells little: a setting can switch the feature on in an older one."""
    lacks = {**HAS, "standalone_activities": False}
    expected = (
        "upgrade the Temporal service to 1.32 or later: version 1.28.1 has no standalone_activities"
    )
    assert remedy("0.1.0", ["0.1.0"], {}, "1.28.1", lacks) == expected


@given(
    VERSIONS,
    st.lists(VERSIONS | st.none(), min_size=1),
    st.lists(VERSIONS | st.none(), unique=True),
)
def test_versions_fit_exactly_if_all_are_of_one_release(
    client: str, control_planes: list[str | None], agents: list[str | None]
) -> None:
    """A fit that is not one would hide the cause of a fault; a remedy without need would send
    somebody to restart a cluster.
    """
    todo = remedy(client, control_planes, {version: ["h1"] for version in agents}, "1.32.0", HAS)
    assert (not todo) == (
        len({release(version) for version in (client, *control_planes, *agents)}) == 1
    )
