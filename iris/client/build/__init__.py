"""Builds the specification of a job from what its user asks for, and uploads its files."""

from typing import TYPE_CHECKING

from iris.lazy import modules_of

if TYPE_CHECKING:
    from iris.client.build import job as job
    from iris.client.build import options as options
    from iris.client.build import parent as parent
    from iris.client.build import send as send
else:
    __getattr__ = modules_of(__name__)
