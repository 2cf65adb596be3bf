"""The scripts that Google's machines boot with, executed by bash on a machine that is only a directory."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iris.model.constraints import parse_attribute
from iris.platforms.gcp.startup import controller_script, host_script
from tests.builders import some
from tests.fakes.metadata import FakeMetadata
from tests.platforms.boots import Machine, some_settings
from tests.platforms.test_gcp_startup import ODD
from tests.platforms.worlds import a_group, wanted

Machines = Callable[..., Machine]
#: Whatever a value can be in a command line.
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@pytest.fixture
def metadata() -> Iterator[FakeMetadata]:
    with FakeMetadata().started() as server:
        server.set(attributes__agent_worker_number="1", attributes__iris_address="10.0.0.5:10000")
        yield server


@pytest.fixture
def machine(tmp_path: Path, metadata: FakeMetadata) -> Machines:
    numbers = itertools.count()

    def make(**more: Any) -> Machine:
        return Machine(tmp_path / f"machine-{next(numbers)}", metadata.url.removeprefix("http://"), **more)

    return make


SCRIPT = host_script(some_settings(), wanted())


def command(words: list[str]) -> list[str]:
    """What runs in a container."""
    return words[words.index("iris") :]


def option(words: list[str], name: str) -> list[str]:
    """The values of an option, as `--name value` or `--name=value`."""
    after = [value for word, value in itertools.pairwise(words) if word == name]
    return after + [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]


def test_a_machine_of_a_slice_becomes_the_host_that_it_is(machine: Machines) -> None:
    """Its number and its cluster's address come from the metadata server; everything else was known before it was made."""
    host = machine()

    console = host.boot(SCRIPT)

    runs = command(host.container)
    assert console.code == 0, console.text
    assert runs[:4] == ["iris", "--cluster", "10.0.0.5:10000/dev", "agent"]
    assert option(runs, "--slice") == ["dev-v5e-16-abc"]
    assert option(runs, "--host-id") == ["dev-v5e-16-abc-w-1"]
    assert option(runs, "--token") == ["token of dev-v5e-16-abc"]
    assert "scale-group=v5e-16" in option(runs, "--attribute")
    assert "tpu-worker-id" not in "".join(runs)


def test_all_of_a_boot_is_told_on_the_console(machine: Machines) -> None:
    """There is nothing else to be seen of a machine that cannot be logged in to."""
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
    """Containers of tasks are made by the machine's engine: a path that only the agent knows would be empty in them."""
    host = machine()
    host.boot(SCRIPT)

    mounts = [each.split(":") for each in option(host.container, "-v")]
    runs = command(host.container)
    assert [each for each in mounts if each[0] != each[1]] == []
    assert [f"{host.root}/etc/iris", f"{host.root}/etc/iris", "ro"] in mounts
    assert {option(runs, name)[0] for name in ("--dir", "--cache")} <= {each[0] for each in mounts}
    assert option(runs, "--config") == [f"{host.root}/etc/iris/config.yaml"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(config=TEXT, token=TEXT, value=TEXT)
def test_whatever_is_said_arrives_as_it_was_said(machine: Machines, config: str, token: str, value: str) -> None:
    """Quotes, dollar signs and the ends of here-documents are only characters."""
    host = machine()
    group = a_group(attributes={"pool": value})

    console = host.boot(host_script(some_settings(config=config), wanted(group=group, token=token)))

    assert console.code == 0, console.text
    assert host.config == config.encode()
    assert option(host.container, "--token") == [token]
    said = dict(each.split("=", 1) for each in option(host.container, "--attribute"))
    assert parse_attribute(said["pool"]) == value, "as the agent reads it"


def test_the_configuration_is_for_nobody_elses_eyes(machine: Machines) -> None:
    """What it gives to the environment of tasks may be a password."""
    host = machine()
    host.boot(host_script(some_settings(config=ODD), wanted()))

    assert host.config == ODD.encode()
    assert (host.root / "etc/iris/config.yaml").stat().st_mode & 0o077 == 0


def test_a_metadata_server_that_is_late_is_waited_for(machine: Machines, metadata: FakeMetadata) -> None:
    """Networks come up after machines."""
    metadata.fails = 5
    host = machine()

    assert host.boot(SCRIPT).code == 0
    assert option(host.container, "--host-id") == ["dev-v5e-16-abc-w-1"]


def test_a_machine_that_cannot_find_out_who_it_is_says_so_and_starts_nothing(machine: Machines, metadata: FakeMetadata) -> None:
    """Two hosts of one id would throw each other out."""
    metadata.fails = 1000
    host = machine()

    console = host.boot(SCRIPT, tries=3)

    assert console.code == 1
    assert "FAILED: the metadata has no agent-worker-number, which selects the host of the slice" in console.text
    assert host.calls("run") == []


@pytest.mark.parametrize("number", ["2", "-1", "x", "", "1; id"])
def test_a_number_that_no_host_of_the_slice_has_is_refused(machine: Machines, metadata: FakeMetadata, number: str) -> None:
    """A slice that is not the one that was asked for must not take work."""
    metadata.set(attributes__agent_worker_number=number)

    console = machine().boot(SCRIPT)

    assert console.code == 1
    assert "FAILED: agent-worker-number is '" in console.text


def test_without_an_address_in_its_metadata_a_host_takes_the_scripts(tmp_path: Path, metadata: FakeMetadata) -> None:
    """Metadata can be changed while a machine runs, the script cannot; but somebody may have removed it."""
    with FakeMetadata().started() as bare:
        host = Machine(tmp_path, bare.url.removeprefix("http://"))
        host.boot(host_script(some_settings(), wanted(group=a_group(hosts=1))))

    assert option(host.container, "--cluster") == ["controller.internal:10000/dev"]
    assert option(host.container, "--host-id") == ["dev-v5e-16-abc"]


def test_where_docker_is_missing_it_is_installed(machine: Machines) -> None:
    """Debian's image comes without; while a machine boots, others hold the package manager's lock."""
    host = machine(docker=False)
    host.knob("apt-fails", 2)

    console = host.boot(SCRIPT)

    assert console.code == 0, console.text
    assert "docker.io" in host.said("installed")
    assert "installing docker: try 2 of 20 failed" in console.text
    assert host.container


def test_an_engine_that_is_still_starting_is_waited_for(machine: Machines) -> None:
    """At boot it may come later than the script."""
    host = machine()
    host.knob("engine-down", 3)

    assert host.boot(SCRIPT).code == 0
    assert len(host.calls("info")) == 4


@pytest.mark.parametrize(("fails", "comes_up"), [(19, True), (20, False)])
def test_an_image_is_pulled_twenty_times_before_the_machine_gives_up(machine: Machines, fails: int, comes_up: bool) -> None:
    """One pull that fails would strand the host, and with it the slice; one that never works has to be told at last."""
    host = machine()
    host.knob("pull-fails", fails)

    console = host.boot(SCRIPT)

    assert (console.code == 0) is comes_up
    assert len(host.calls("pull")) == 20
    assert ("FAILED: could not pull example.com/iris-agent:1" in console.text) is not comes_up
    assert bool(host.calls("run")) is comes_up


def test_a_machine_that_boots_again_makes_do_with_the_image_it_has(machine: Machines) -> None:
    """A registry that is away must not take hosts with it."""
    host = machine()
    host.boot(SCRIPT)
    host.knob("pull-fails", 1000)

    console = host.boot(SCRIPT, tries=2)

    assert console.code == 0
    assert "using the image on this machine" in console.text


def test_a_script_that_runs_again_leaves_what_runs_alone(machine: Machines) -> None:
    """It runs at every boot, and whenever somebody calls for it: tasks must not pay for that."""
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


def test_an_agent_that_does_not_stay_has_its_last_words_on_the_console(machine: Machines) -> None:
    """Of a slice whose agents never report, the console is all there is to ask."""
    host = machine()
    host.knob("restarts", 3)

    console = host.boot(SCRIPT)

    assert console.code == 0
    assert "[iris-init] | cannot reach the cluster" in console.text


def test_googles_registry_is_shown_the_machines_own_token(machine: Machines, metadata: FakeMetadata) -> None:
    """The service account may read the image; a program that says so for it is missing on most machines."""
    metadata.set(service_accounts__default__token='{"access_token":"ya29.secret","expires_in":3599,"token_type":"Bearer"}')
    host, other = machine(), machine()

    host.boot(host_script(some_settings(image="europe-west4-docker.pkg.dev/p/iris/agent:1"), wanted()))
    other.boot(SCRIPT)

    assert host.calls("login") == [
        ["login", "-u", "oauth2accesstoken", "--password-stdin", "https://europe-west4-docker.pkg.dev"]
    ]
    assert host.said("password") == "ya29.secret\n"
    assert other.calls("login") == []


def test_a_tpu_host_gives_its_chips_to_the_agent(machine: Machines) -> None:
    """libtpu wants the devices, and to pin memory."""
    host = machine(chips=())
    host.has("dev/vfio/0", "dev/vfio/1", "dev/vfio/2", "dev/vfio/10", "dev/vfio/vfio", "dev/accel_of_another_kind")

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

    assert option(host.container, "--device") == [f"{host.root}/dev/accel{number}:/dev/accel{number}" for number in range(4)]


def test_a_tpu_host_waits_until_all_of_its_chips_are_there(machine: Machines) -> None:
    """The driver may come after the script, and a container has the devices that were there when it was made."""
    host = machine(chips=("dev/vfio/0", "dev/vfio/vfio"))
    host.comes_later("dev/vfio/1", "dev/vfio/2", "dev/vfio/3")

    console = host.boot(SCRIPT)

    assert console.code == 0, console.text
    assert "waiting for 4 TPU chips: try 3 of 20 failed" in console.text
    assert len(option(host.container, "--device")) == 5


def test_a_tpu_host_without_chips_says_so_and_starts_nothing(machine: Machines) -> None:
    """With a runtime version of another kind of TPU the driver finds none; an agent would take work that can only fail."""
    host = machine(chips=("dev/vfio/vfio",))

    console = host.boot(SCRIPT, tries=2)

    assert (console.code, host.calls("run")) == (1, [])
    assert "FAILED: there are no TPU chips" in console.text


def test_a_tpu_host_with_fewer_chips_says_so_and_goes_on(machine: Machines) -> None:
    """How many files a chip has is for libtpu to know."""
    host = machine(chips=("dev/accel0",))

    console = host.boot(SCRIPT, tries=2)

    assert console.code == 0
    assert "found only 1 of 4 TPU chips" in console.text
    assert len(option(host.container, "--device")) == 1


def test_a_gpu_host_waits_for_its_driver(machine: Machines) -> None:
    """It is installed when the machine boots for the first time; an agent that comes before would offer no GPUs."""
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
    """What the group says of its tasks is for the agent."""
    group = a_group("cpu", 1, resources=some(), accelerator_variant="", task_image="example.com/task:2", accept_cpu_jobs=True)
    host = machine()

    host.boot(host_script(some_settings(), wanted(group=group)))

    words = host.container
    assert option(words, "--device") + option(words, "--gpus") == []
    assert option(command(words), "--image") == ["example.com/task:2"]
    assert "--accept-cpu-jobs" in command(words)


def test_the_control_planes_machine_runs_the_control_plane(machine: Machines) -> None:
    """With the configuration that it cannot change, and its state on the machine's disk."""
    host = machine()

    console = host.boot(controller_script(some_settings(config=ODD), image="example.com/iris-controller:1", port=10000))

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
def test_a_control_plane_that_does_not_stay_has_failed_with_its_last_words(machine: Machines, looks: int) -> None:
    """Whoever has started the cluster waits at this very console, and would wait for a quarter of an hour."""
    host = machine()
    host.knob("crash-loop", 0)
    host.knob("looks-to-crash", looks)

    console = host.boot(CONTROLLER)

    assert console.code == 1
    assert "[iris-init] | cannot reach the cluster" in console.text
    assert console.text.splitlines()[-1].startswith("[iris-init] FAILED: iris-controller does not stay up")


def test_a_control_plane_that_comes_up_at_the_second_start_has_not_failed(machine: Machines) -> None:
    """Its store may answer a little later than the machine; but what it said then is told."""
    host = machine()
    host.knob("restarts", 2)

    console = host.boot(CONTROLLER)

    assert console.code == 0, console.text
    assert "[iris-init] | cannot reach the cluster" in console.text


def test_what_went_wrong_before_a_script_runs_again_is_not_held_against_what_runs(machine: Machines) -> None:
    """Docker counts all starts of a container, however long ago they were."""
    host = machine()
    host.boot(CONTROLLER)
    host.knob("restarts", 7)

    console = host.boot(CONTROLLER)

    assert console.code == 0
    assert "iris-controller is up" in console.text
