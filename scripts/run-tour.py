#!/usr/bin/env python3
"""Runs examples/tour.ipynb on a cluster of its own, and stores its outputs in it or in the file
`--output`.
"""

import argparse
import os
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

TOUR = Path(__file__).parents[1] / "examples" / "tour.ipynb"
#: Of a cell, in seconds.
TIMEOUT = 240


def executed(path: Path = TOUR) -> nbformat.NotebookNode:
    """Returns the notebook with the outputs of a run in an empty directory, which no output names.

    Raises:
        CellExecutionError: a cell raised an exception.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory(prefix="iris-", ignore_cleanup_errors=True) as directory:
        given = {name: value for name, value in os.environ.items() if not name.startswith("IRIS_")}
        env = {**given, "IRIS_STATE_DIR": directory, "IRIS_USER": "ada"}
        kernel = NotebookClient(
            notebook,
            timeout=TIMEOUT,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": directory}},
        )
        kernel.execute(env=env)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run examples/tour.ipynb and store its outputs.")
    parser.add_argument(
        "--output", type=Path, default=TOUR, metavar="FILE", help="default: the tour itself"
    )
    nbformat.write(executed(), parser.parse_args().output)
