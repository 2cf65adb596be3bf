"""docker/: the files that no other test executes."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from iris.worker_agents.local.temporal_server import SERVER_SETTINGS

ROOT = Path(__file__).parent.parent
DOCKER = ROOT / "docker"

Services = dict[str, dict[str, Any]]


def checked(program: str, *files: Path) -> str:
    """What a checker of the environment has to say."""
    ran = subprocess.run(
        [Path(sys.executable).parent / program, *files],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return ran.stdout + ran.stderr


def test_hadolint_has_nothing_against_the_dockerfiles() -> None:
    """It knows what makes images large, unsafe or different every time."""
    files = [DOCKER / "Dockerfile", *DOCKER.glob("*.Dockerfile")]

    assert len(files) == 3
    assert checked("hadolint", *files) == ""


def test_shellcheck_has_nothing_against_the_scripts_beside_it() -> None:
    """They run where nobody looks."""
    beside = [DOCKER / name for name in ("temporal-schema", "temporal-start", "postgres-start")]
    scripts = [ROOT / "scripts" / name for name in ("build-images", "install-compose")]

    assert checked("shellcheck", *beside, *scripts) == ""


@pytest.fixture
def services() -> Services:
    return dict(yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"])


def test_the_composed_services_wait_for_one_another(services: Services) -> None:
    """A name that is not there would only show when somebody starts it."""
    waits = {name: set(service.get("depends_on", {})) for name, service in services.items()}

    assert waits["temporal"] == {"schema"}
    assert waits["iris"] == {"namespace"}
    assert {each for names in waits.values() for each in names} <= set(services)


def test_what_the_composed_services_mount_is_there(services: Services) -> None:
    """Docker makes a directory of what is missing, and says nothing."""
    mounts = [str(mount) for service in services.values() for mount in service.get("volumes", ())]
    files = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]

    assert len(files) == 3
    assert [file for file in files if not (DOCKER / file).is_file()] == []


def test_no_port_is_published_beyond_this_machine_unless_somebody_says_so(
    services: Services,
) -> None:
    """Temporal has no access control here. Docker publishes a port without an address on all of
    them, past most firewalls.
    """
    published = {str(port) for service in services.values() for port in service.get("ports", ())}

    assert published == {"${IRIS_PUBLISH:-127.0.0.1}:7233:7233", "127.0.0.1:8080:8080"}


def test_the_web_ui_starts_no_jobs_unless_somebody_says_so(services: Services) -> None:
    """Its container answers under every host name, and so to web pages that find its address."""
    assert (
        services["ui"]["environment"]["TEMPORAL_DISABLE_WRITE_ACTIONS"]
        == "${IRIS_UI_READ_ONLY:-true}"
    )


def test_the_web_ui_is_published_behind_the_guard(services: Services) -> None:
    """Without it, a page whose name becomes 127.0.0.1 would read all jobs' commands."""
    assert [
        name
        for name, service in services.items()
        if "127.0.0.1:8080:8080" in service.get("ports", ())
    ] == ["guard"]
    assert services["guard"]["command"][:3] == ["iris", "controller", "guard-ui"]
    assert services["guard"]["command"][-1] == "ui:8080"


def test_the_control_plane_finds_its_credentials_where_its_environment_says(
    services: Services,
) -> None:
    """Without them it can use neither its store nor machines. Where none are named it must not look
    for a file: the machine's own account is meant.
    """
    iris, name = services["iris"], "GOOGLE_APPLICATION_CREDENTIALS"
    (mount,) = (each for each in iris["volumes"] if name in each)

    assert iris["environment"] == {name: None}  # as it is outside, and not at all where it is not
    assert mount == f"${{{name}:-/dev/null}}:${{{name}:-/etc/iris/no-credentials}}:ro"


def test_temporal_is_set_up_as_iris_own_is() -> None:
    """What was measured with one holds for the other."""
    there = yaml.safe_load((DOCKER / "temporal-dynamic.yaml").read_text())
    own = dict(each.split("=", 1) for each in SERVER_SETTINGS)

    assert {key: [{"value": yaml.safe_load(value)}] for key, value in own.items()} == there
