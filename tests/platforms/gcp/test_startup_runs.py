"""The startup scripts of Google's machines, executed by bash on a simulated machine in a
directory.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iris.model.host.constraints import parse_attribute
from iris.platforms.gcp.startup import controller_script, host_script
from tests.builders import some
from tests.fakes.metadata import FakeMetadata
from tests.platforms.gcp.boots import Machine, some_settings
from tests.platforms.gcp.requests import KEY
from tests.platforms.gcp.test_startup import ODD
from tests.platforms.worlds import a_group, wanted
from tests.strategies import examples

pytestmark = pytest.mark.long

Machines = Callable[..., Machine]
#: Whatever a value can be in a command line.
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@pytest.fixture
def metadata() -> Iterator[FakeMetadata]:
    with FakeMetadata().started() as server:
        server.set(attributes__agent_worker_number="1", attributes__iris_address="10.0.0.5:10000")
        server.set(attributes__iris_private_key=KEY)
        yield server


@pytest.fixture
def machine(tmp_path: Path, metadata: FakeMetadata) -> Machines:
    numbers = itertools.count()

    def make(**more: Any) -> Machine:
        return Machine(
            tmp_path / f"machine-{next(numbers)}", metadata.url.removeprefix("http://"), **more
        )

    return make


SCRIPT = host_script(some_settings(), wanted())


def command(words: list[str]) -> list[str]:
    """What runs in a container."""
    return words[words.index("iris") :]


def option(words: list[str], name: str) -> list[str]:
    """The values of an option, as `--name value` or `--name=value`."""
    after = [value for word, value in itertools.pairwise(words) if word == name]
    return after + [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]


def test_a_machine_of_a_slice_becomes_its_host(machine: Machines) -> None:
    """Its worker id and the cluster's address come from the metadata server; everything else is in
    the script.
    """
    host = machine()

    console = host.boot(SCRIPT)

    runs = command(host.container)
    assert console.code == 0, console.text
    assert runs[:4] == ["iris", "--cluster", "10.0.0.5:10000/dev", "agent"]
    assert option(runs, "--slice") == ["dev-v5e-16-abc"]
    assert option(runs, "--host-id") == ["dev-v5e-16-abc-w-1"]
    assert option(runs, "--key-file") == [f"{host.root}/etc/iris/slice.key"]
    assert "scale-group=v5e-16" in option(runs, "--attribute")
    assert "tpu-worker-id" not in "".join(runs)


def test_the_console_shows_every_step_of_a_boot(machine: Machines) -> None:
    """It is the only information from a machine without login."""
    console = machine().boot(SCRIPT)

    lines = console.text.splitlines()
    assert all(line.startswith("[iris-init] ") for line in lines), console.text
    told = (
        "booting a host of slice",
        "this is host dev-v5e-16-abc-w-1",
        "wrote ",
        "docker is running",
        "pulled ",
        "started iris-agent",
        "is up",
        "done",
    )
    assert [word for word in told if word not in console.text] == []


def test_an_agents_directories_have_the_same_path_in_its_container(machine: Machines) -> None:
    """The machine's engine starts the containers of tasks: a path that only the agent knows would
    be empty there.
    """
    host = machine()
    host.boot(SCRIPT)

    mounts = [each.split(":") for each in option(host.container, "-v")]
    runs = command(host.container)
    assert [each for each in mounts if each[0] != each[1]] == []
    assert [f"{host.root}/etc/iris", f"{host.root}/etc/iris", "ro"] in mounts
    assert {option(runs, name)[0] for name in ("--dir", "--cache")} <= {each[0] for each in mounts}
    assert option(runs, "--config") == [f"{host.root}/etc/iris/config.yaml"]


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(config=TEXT, value=TEXT)
def test_values_reach_the_agent_unchanged(machine: Machines, config: str, value: str) -> None:
    """Quotes, dollar signs and the ends of here-documents are only characters."""
    host = machine()
    group = a_group(attributes={"pool": value})

    console = host.boot(host_script(some_settings(config=config), wanted(group=group)))

    assert console.code == 0, console.text
    assert host.config == config.encode()
    said = dict(each.split("=", 1) for each in option(host.container, "--attribute"))
    assert parse_attribute(said["pool"]) == value, "as the agent reads it"


def test_the_slices_key_is_in_a_file_that_only_the_agent_reads(machine: Machines) -> None:
    """A command line is shown to every user of the machine, and by Docker."""
    host = machine()
    console = host.boot(SCRIPT)
    file = host.root / "etc/iris/slice.key"

    assert (file.read_text(), file.stat().st_mode & 0o077) == (KEY, 0)
    assert KEY not in SCRIPT + console.text
    assert [
        words
        for verb in ("run", "inspect", "pull")
        for words in host.calls(verb)
        if KEY in "".join(words)
    ] == []


def test_a_machine_without_its_key_says_so(tmp_path: Path) -> None:
    """The slice could only refuse its agent."""
    with FakeMetadata().started() as server:
        server.set(attributes__agent_worker_number="1", attributes__iris_address="10.0.0.5:10000")
        console = Machine(tmp_path / "machine", server.url.removeprefix("http://")).boot(
            SCRIPT, tries=2
        )

    assert console.code == 1
    assert "FAILED: the metadata has no iris-private-key" in console.text


def test_the_configuration_is_private(machine: Machines) -> None:
    """Its environment variables for tasks may contain a password."""
    host = machine()
    host.boot(host_script(some_settings(config=ODD), wanted()))

    assert host.config == ODD.encode()
    assert (host.root / "etc/iris/config.yaml").stat().st_mode & 0o077 == 0


def test_the_script_waits_for_the_metadata_server(
    machine: Machines, metadata: FakeMetadata
) -> None:
    """Networks start after machines."""
    metadata.fails = 5
    host = machine()

    assert host.boot(SCRIPT).code == 0
    assert option(host.container, "--host-id") == ["dev-v5e-16-abc-w-1"]


def test_a_machine_without_a_worker_id_fails_and_starts_nothing(
    machine: Machines, metadata: FakeMetadata
) -> None:
    """Two hosts with one id would conflict."""
    metadata.fails = 1000
    host = machine()

    console = host.boot(SCRIPT, tries=3)

    assert console.code == 1
    assert (
        "FAILED: the metadata has no agent-worker-number, which selects the host of the slice"
        in console.text
    )
    assert host.calls("run") == []


@pytest.mark.parametrize("number", ["2", "-1", "x", "", "1; id"])
def test_an_invalid_worker_id_is_refused(
    machine: Machines, metadata: FakeMetadata, number: str
) -> None:
    """A slice of the wrong size must not take work."""
    metadata.set(attributes__agent_worker_number=number)

    console = machine().boot(SCRIPT)

    assert console.code == 1
    assert "FAILED: agent-worker-number is '" in console.text


def test_a_host_without_an_address_in_its_metadata_uses_that_of_the_script(
    tmp_path: Path, metadata: FakeMetadata
) -> None:
    """Metadata can change while a machine runs; a person may have removed the key."""
    with FakeMetadata().started() as bare:
        bare.set(attributes__iris_private_key=KEY)
        host = Machine(tmp_path, bare.url.removeprefix("http://"))
        host.boot(host_script(some_settings(), wanted(group=a_group(hosts=1))))

    assert option(host.container, "--cluster") == ["controller.internal:10000/dev"]
    assert option(host.container, "--host-id") == ["dev-v5e-16-abc"]


def test_missing_docker_is_installed(machine: Machines) -> None:
    """Debian's image lacks it; during a boot, other processes hold the package manager's lock."""
    host = machine(docker=False)
    host.knob("apt-fails", 2)

    console = host.boot(SCRIPT)

    assert console.code == 0, console.text
    assert "docker.io" in host.said("installed")
    assert "installing docker: try 2 of 20 failed" in console.text
    assert host.container


def test_the_script_waits_for_the_engine(machine: Machines) -> None:
    """It may start later than the script."""
    host = machine()
    host.knob("engine-down", 3)

    assert host.boot(SCRIPT).code == 0
    assert len(host.calls("info")) == 4


@pytest.mark.parametrize(("fails", "comes_up"), [(19, True), (20, False)])
def test_a_pull_is_tried_twenty_times(machine: Machines, fails: int, comes_up: bool) -> None:
    """One failed pull must not cost the slice; a pull that never works must be reported."""
    host = machine()
    host.knob("pull-fails", fails)

    console = host.boot(SCRIPT)

    assert (console.code == 0) is comes_up
    assert len(host.calls("pull")) == 20
    assert ("FAILED: could not pull example.com/iris-agent:1" in console.text) is not comes_up
    assert bool(host.calls("run")) is comes_up


def test_a_rebooted_machine_can_use_its_local_image(machine: Machines) -> None:
    """An unavailable registry must not cost hosts."""
    host = machine()
    host.boot(SCRIPT)
    host.knob("pull-fails", 1000)

    console = host.boot(SCRIPT, tries=2)

    assert console.code == 0
    assert "using the image on this machine" in console.text


def test_a_repeated_script_does_not_disturb_the_running_agent(machine: Machines) -> None:
    """It runs at every boot and at other times; tasks must not notice."""
    host = machine()

    first, second = host.boot(SCRIPT), host.boot(SCRIPT)

    assert (first.code, second.code) == (0, 0)
    assert len(host.calls("run")) == 1
    assert "iris-agent is already running" in second.text


def test_another_configuration_makes_another_container(machine: Machines) -> None:
    """An agent reads its configuration when it starts."""
    host = machine()

    host.boot(SCRIPT)
    host.boot(host_script(some_settings(config="name: other\n"), wanted()))

    assert len(host.calls("run")) == 2
    assert host.calls("rm")[-1] == ["rm", "-f", "iris-agent"]
    assert host.config == b"name: other\n"


def test_the_console_has_the_last_output_of_an_agent_that_exits(machine: Machines) -> None:
    """If a slice's agents never report, the console is the only source."""
    host = machine()
    host.knob("restarts", 3)

    console = host.boot(SCRIPT)

    assert console.code == 0
    assert "[iris-init] | cannot reach the cluster" in console.text


def test_googles_registry_gets_the_machines_token(
    machine: Machines, metadata: FakeMetadata
) -> None:
    """The service account may read the image, but most machines lack the program that logs in."""
    metadata.set(
        service_accounts__default__token=(
            '{"access_token":"ya29.secret","expires_in":3599,"token_type":"Bearer"}'
        )
    )
    host, other = machine(), machine()

    host.boot(
        host_script(some_settings(image="europe-west4-docker.pkg.dev/p/iris/agent:1"), wanted())
    )
    other.boot(SCRIPT)

    assert host.calls("login") == [
        [
            "login",
            "-u",
            "oauth2accesstoken",
            "--password-stdin",
            "https://europe-west4-docker.pkg.dev",
        ]
    ]
    assert host.said("password") == "ya29.secret\n"
    assert other.calls("login") == []


def test_a_tpu_host_gives_its_chips_to_the_agent(machine: Machines) -> None:
    """libtpu needs the devices and pins memory."""
    host = machine(chips=())
    host.has(
        "dev/vfio/0",
        "dev/vfio/1",
        "dev/vfio/2",
        "dev/vfio/10",
        "dev/vfio/vfio",
        "dev/accel_of_another_kind",
    )

    host.boot(SCRIPT)

    words = host.container
    names = ("vfio/0", "vfio/1", "vfio/10", "vfio/2", "vfio/vfio")
    assert option(words, "--device") == [f"{host.root}/dev/{name}:/dev/{name}" for name in names]
    assert "memlock=68719476736:68719476736" in option(words, "--ulimit")
    assert "SYS_RESOURCE" in option(words, "--cap-add")


def test_chips_of_older_kinds_have_other_names(machine: Machines) -> None:
    """v4 has them."""
    host = machine(chips=("dev/accel0", "dev/accel1", "dev/accel2", "dev/accel3"))

    host.boot(SCRIPT)

    assert option(host.container, "--device") == [
        f"{host.root}/dev/accel{number}:/dev/accel{number}" for number in range(4)
    ]


def test_a_tpu_host_waits_for_all_its_chips(machine: Machines) -> None:
    """The driver may start after the script, and a container gets only devices that exist at its
    creation.
    """
    host = machine(chips=("dev/vfio/0", "dev/vfio/vfio"))
    host.comes_later("dev/vfio/1", "dev/vfio/2", "dev/vfio/3")

    console = host.boot(SCRIPT)

    assert console.code == 0, console.text
    assert "waiting for 4 TPU chips: try 3 of 20 failed" in console.text
    assert len(option(host.container, "--device")) == 5


def test_a_tpu_host_without_chips_fails_and_starts_nothing(machine: Machines) -> None:
    """With the runtime version of another TPU kind the driver finds none; an agent would take tasks
    that can only fail.
    """
    host = machine(chips=("dev/vfio/vfio",))

    console = host.boot(SCRIPT, tries=2)

    assert (console.code, host.calls("run")) == (1, [])
    assert "FAILED: there are no TPU chips" in console.text


def test_a_tpu_host_with_fewer_chips_reports_it_and_continues(machine: Machines) -> None:
    """Only libtpu knows how many files a chip has."""
    host = machine(chips=("dev/accel0",))

    console = host.boot(SCRIPT, tries=2)

    assert console.code == 0
    assert "found only 1 of 4 TPU chips" in console.text
    assert len(option(host.container, "--device")) == 1


def test_a_gpu_host_waits_for_its_driver(machine: Machines) -> None:
    """The first boot installs it; an agent without it would offer no GPUs."""
    group = a_group("h100", 1, resources=some(device="gpu:H100:8"), accelerator_variant="H100x8")
    script = host_script(some_settings(), wanted(group=group))
    host, broken = machine(), machine()
    host.knob("driver-missing", 4)
    broken.knob("driver-missing", 1000)

    assert host.boot(script, tries=2).code == 0
    assert "--gpus=all" in host.container
    console = broken.boot(script, tries=2)
    assert (console.code, "FAILED: there is no GPU driver" in console.text) == (1, True)
    assert "waiting for the GPU driver: try 6 of 6 failed" in console.text


def test_a_host_without_accelerators_gets_no_devices(machine: Machines) -> None:
    """The group's settings for tasks are options of the agent."""
    group = a_group(
        "cpu",
        1,
        resources=some(),
        accelerator_variant="",
        task_image="example.com/task:2",
        accept_cpu_jobs=True,
    )
    host = machine()

    host.boot(host_script(some_settings(), wanted(group=group)))

    words = host.container
    assert option(words, "--device") + option(words, "--gpus") == []
    assert option(command(words), "--image") == ["example.com/task:2"]
    assert "--accept-cpu-jobs" in command(words)


def test_the_control_planes_machine_runs_the_control_plane(machine: Machines) -> None:
    """With a read-only configuration, and its state on the machine's disk."""
    host = machine()

    console = host.boot(
        controller_script(
            some_settings(config=ODD), image="example.com/iris-controller:1", port=10000
        )
    )

    words = host.container
    assert console.code == 0, console.text
    assert host.config == ODD.encode()
    assert f"{host.root}/etc/iris:{host.root}/etc/iris:ro" in option(words, "-v")
    assert words[words.index("iris") - 1] == "example.com/iris-controller:1"
    assert command(words) == [
        *("iris", "controller", "run"),
        *("--config", f"{host.root}/etc/iris/config.yaml"),
        *("--state-dir", f"{host.root}/var/lib/iris"),
        *("--port", "10000"),
    ]


CONTROLLER = controller_script(some_settings(), image="example.com/iris-controller:1", port=10000)


@pytest.mark.parametrize("looks", [1, 15])
def test_a_control_plane_that_exits_fails_with_its_last_output(
    machine: Machines, looks: int
) -> None:
    """`iris cluster start` reads this console, and would otherwise wait for a quarter of an
    hour.
    """
    host = machine()
    host.knob("crash-loop", 0)
    host.knob("looks-to-crash", looks)

    console = host.boot(CONTROLLER)

    assert console.code == 1
    assert "[iris-init] | cannot reach the cluster" in console.text
    assert console.text.splitlines()[-1].startswith(
        "[iris-init] FAILED: iris-controller does not stay up"
    )


def test_a_control_plane_that_stays_up_after_a_restart_has_not_failed(machine: Machines) -> None:
    """Its store may answer later than the machine; the console still has the first output."""
    host = machine()
    host.knob("restarts", 2)

    console = host.boot(CONTROLLER)

    assert console.code == 0, console.text
    assert "[iris-init] | cannot reach the cluster" in console.text


def test_restarts_before_a_repeated_script_do_not_count(machine: Machines) -> None:
    """Docker counts all restarts of a container."""
    host = machine()
    host.boot(CONTROLLER)
    host.knob("restarts", 7)

    console = host.boot(CONTROLLER)

    assert console.code == 0
    assert "iris-controller is up" in console.text
