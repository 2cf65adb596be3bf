"""Reads what a simulation needs from files."""

from collections.abc import Sequence
from pathlib import Path

from iris.cli.simulate.runs import Configuration
from iris.config import load_config
from iris.model.errors import InvalidValue
from iris.simulation.engine import cluster_of
from iris.simulation.measured import measured_world
from iris.simulation.synthetic import read_synthetic, synthetic_trace
from iris.simulation.trace import Trace
from iris.simulation.workload import read_workload
from iris.simulation.world import ANY, World, read_world
from iris.usage.accounting import accounting_of


def read_configuration(file: Path) -> Configuration:
    """Returns the configuration in a file.

    Raises:
        InvalidConfig: the file has errors.
        InvalidValue: it has no scale groups.
    """
    config = load_config(file)
    cluster = cluster_of(config)
    if not cluster.groups:
        remedy = "add scale_groups; machines that join by themselves are not simulated"
        raise InvalidValue("config", file, "has no scale groups", remedy)
    return Configuration(str(file), cluster, accounting_of(config))


#: The maximum size in bytes of a file with a synthetic workload or with assumptions about machines
#: (`--world`). The assumptions about a thousand scale groups need less.
_LARGEST = 10_000_000


def read_text(field: str, file: Path, most: int = -1) -> str:
    """Returns the text of a file.

    Args:
        most: the most bytes that it may have; -1 for no limit.

    Raises:
        InvalidValue: it is not UTF-8, or larger.
    """
    with file.open("rb") as source:
        content = source.read(most + 1 if most >= 0 else -1)
    if 0 <= most < len(content):
        raise InvalidValue(field, file, f"is larger than {most:,} bytes", "give a smaller file")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise InvalidValue(field, file, "is not UTF-8 text", "give a text file") from None


def workload_in(file: Path, gpu: str) -> Trace:
    """Returns the workload in a file: a trace of Iris, or a public one.

    Args:
        gpu: the variant of the GPUs that the jobs of a public trace ask for; empty if it is as in
            the trace.
    """
    return read_workload(str(file), read_text("workload", file), gpu)


def make_workload(text: str) -> Trace:
    """Returns a workload that is described on one line, or in a file of this name."""
    file = Path(text)
    if file.is_file():
        return synthetic_trace(read_synthetic(read_text("synthetic", file, _LARGEST), text))
    if "=" not in text:
        remedy = "give a YAML file, or write KEY=VALUE,KEY=VALUE, such as jobs=1000,days=7,gpu=1|8"
        raise InvalidValue(
            "synthetic", text, "is neither a file nor a description of a workload", remedy
        )
    return synthetic_trace(read_synthetic(text))


def world_of(file: Path | None, trace: Trace) -> tuple[World, str]:
    """Returns the world of a simulation, and a line about where it comes from."""
    if file is not None:
        return read_world(read_text("world", file, _LARGEST), str(file)), f"world: {file}"
    if trace.slices:
        slices = "1 slice" if len(trace.slices) == 1 else f"{len(trace.slices):,} slices"
        measured = f"measured from the {slices} of the workload"
        return measured_world(trace), f"world: {measured}; see it with --show-world"
    return World(), "world: machines boot in 2m and never fail; give another with --world"


def unknown_groups(world: World, configurations: Sequence[Configuration]) -> list[str]:
    """Returns the keys of a world's machines that no configuration has."""
    known = {ANY}
    for each in configurations:
        for group in each.cluster.groups:
            known |= {group.name, *(f"{group.name}@{zone}" for zone in group.zones)}
    return [key for key in world.machines if key not in known]


def unnamed_groups(world: World, configurations: Sequence[Configuration]) -> list[str]:
    """Returns the scale groups, with their zones if they have any, without an entry in a world."""
    places = {
        f"{group.name}@{zone}" if zone else group.name: world.has(group.name, zone)
        for each in configurations
        for group in each.cluster.groups
        for zone in group.zones or ("",)
    }
    return [place for place, has in places.items() if not has]
