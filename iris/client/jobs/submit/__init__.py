"""Submits jobs: starts their workflows, with what a job refers to resolved before."""

from typing import TYPE_CHECKING

from iris.lazy import modules_of

if TYPE_CHECKING:
    from iris.client.jobs.submit import checkpoints as checkpoints
    from iris.client.jobs.submit import start as start
else:
    __getattr__ = modules_of(__name__)
