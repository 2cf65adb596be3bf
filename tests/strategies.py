"""Hypothesis strategies that several test files share: small numbers, so that requests and hosts collide often."""

from hypothesis import settings
from hypothesis import strategies as st

from iris.gangs import Request
from iris.hosts import Host
from iris.jobs import Band
from iris.resources import Device, DeviceKind, Resources
from iris.units import GIB
from tests.builders import a_host, a_request, at

#: For properties of plain functions.
CHEAP = settings(max_examples=200, deadline=None, print_blob=True)


def devices(*variants: str, most: int) -> st.SearchStrategy[Device]:
    return st.builds(Device, kind=st.sampled_from(DeviceKind), variant=st.sampled_from(variants), count=st.integers(1, most))


def wants() -> st.SearchStrategy[Resources]:
    """What a task asks for."""
    return st.builds(
        Resources,
        cpu_millis=st.sampled_from([0, 500, 1000, 3000]),
        memory_bytes=st.integers(0, 4).map(GIB.__mul__),
        disk_bytes=st.sampled_from([0, 0, GIB]),
        device=st.none() | devices("auto", "A", "b", "A,b", most=4),
    )


@st.composite
def fleets(draw: st.DrawFn, least: int = 0) -> list[Host]:
    """Up to five hosts with ids of their own."""
    offers = st.builds(
        Resources,
        cpu_millis=st.sampled_from([500, 2000, 4000, 8000]),
        memory_bytes=st.integers(0, 8).map(GIB.__mul__),
        disk_bytes=st.integers(0, 3).map(GIB.__mul__),
        device=st.none() | devices("a", "B", most=8),
    )
    drawn = draw(st.lists(st.tuples(offers, st.booleans()), min_size=least, max_size=5))
    return [a_host(f"h{i}", offers=offer, accept_cpu_jobs=accept) for i, (offer, accept) in enumerate(drawn)]


@st.composite
def queues(draw: st.DrawFn, prefix: str = "k") -> list[Request]:
    """Up to fifteen requests of up to three shapes, in any order."""
    shapes = draw(st.lists(wants(), min_size=1, max_size=3))
    entry = st.tuples(st.sampled_from(shapes), st.sampled_from(Band), st.integers(0, 5))
    drawn = draw(st.lists(entry, max_size=15))
    return draw(
        st.permutations(
            [
                a_request(f"{prefix}{i:02}", wants=shape, band=band, submitted_at=at(second))
                for i, (shape, band, second) in enumerate(drawn)
            ]
        )
    )
