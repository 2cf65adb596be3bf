"""Schedules: Temporal schedules that start a job again and again."""

from typing import TYPE_CHECKING

from iris.lazy import modules_of

if TYPE_CHECKING:
    from iris.client.schedules import client as client
    from iris.client.schedules import when as when
else:
    __getattr__ = modules_of(__name__)
