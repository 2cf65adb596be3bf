"""Looks for planted values wherever a cluster keeps or shows anything: files, histories, command
lines.
"""

import base64
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.e2e.cluster import Cluster


def command_lines() -> list[str]:
    """Returns the command lines of all processes of the machine, which every user can read."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            found.append(" ".join(process.cmdline()))
    return found


def files_of(directory: Path) -> Iterator[Path]:
    """Yields the regular files below a directory. Files that end meanwhile do no harm."""
    for folder, _, files in os.walk(directory):
        yield from (
            path
            for path in (Path(folder, name) for name in files)
            if path.is_file() and not path.is_symlink()
        )


def files_with(paths: Iterable[Path], *values: bytes) -> set[Path]:
    """Returns those files that contain one of the values."""
    found = set()
    for path in paths:
        with suppress(OSError):  # removed since
            content = path.read_bytes()
            if any(value in content for value in values):
                found.add(path)
    return found


def histories(cluster: Cluster) -> str:
    """Returns what Temporal shows of every workflow of the cluster, with payloads decoded."""
    listed = [each["execution"]["workflowId"] for each in cluster.temporal("workflow", "list")]
    return json.dumps(
        [_readable(cluster.temporal("workflow", "show", "--workflow-id", each)) for each in listed]
    )


def _readable(content: Any) -> Any:
    """Returns the content with the data of payloads as text."""
    if isinstance(content, list):
        return [_readable(each) for each in content]
    if not isinstance(content, dict):
        return content
    texts = {
        key: _text_of(value)
        for key, value in content.items()
        if key == "data" and isinstance(value, str)
    }
    return {key: _readable(value) for key, value in content.items()} | texts


def _text_of(payload: str) -> str:
    return base64.b64decode(payload).decode(errors="replace")
