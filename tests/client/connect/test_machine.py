"""Logging in to a control plane's machine, which a stand-in of gcloud plays."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from iris.client.connect.clusters import ControllerVm
from iris.client.operate.gcp.ssh import run_on_machine
from iris.model.errors import Unreachable
from tests.e2e.cluster import alive, eventually

VM = ControllerVm(project="p", zone="z", machine="m", port=10000)


@pytest.fixture
def gcloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name, which is to be written."""
    program = tmp_path / "bin" / "gcloud"
    program.parent.mkdir()
    program.touch(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return program


def test_a_login_that_takes_too_long_leaves_no_process(gcloud: Path, tmp_path: Path) -> None:
    """What is ended with gcloud is the ssh that it has started, which would go on for ever."""
    gcloud.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path}/ssh\nwait\n")
    with pytest.raises(Unreachable, match="m did not answer over SSH within 2 s"):
        run_on_machine(VM, "true", timedelta(seconds=2))
    ssh = int((tmp_path / "ssh").read_text())
    eventually(lambda: not alive(ssh))


def test_what_is_no_text_is_shown_as_far_as_it_is(gcloud: Path) -> None:
    """A program may have written anything into its log."""
    gcloud.write_text("#!/bin/sh\nprintf 'a\\377b\\n'\n")
    assert run_on_machine(VM, "true") == "a\ufffdb\n"
