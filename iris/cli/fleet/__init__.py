"""Commands for hosts, slices, scale groups and the autoscaler."""

from typing import TYPE_CHECKING

from iris.lazy import modules_of

if TYPE_CHECKING:
    from iris.cli.fleet import without_control_plane as without_control_plane
else:
    __getattr__ = modules_of(__name__)
