"""Exports finished spans by OTLP, if the variable `IRIS_TRACING` is 1.

OpenTelemetry's own variables say where to: `OTEL_EXPORTER_OTLP_ENDPOINT` and so on.
"""

import logging
import os
from typing import TYPE_CHECKING

from iris.model import names
from iris.model.errors import Rejected
from iris.tracing.context import Span

if TYPE_CHECKING:
    from iris.tracing.exporter import Exporter

logger = logging.getLogger(__name__)

_exporter: "Exporter | None" = None


def wanted() -> bool:
    """Returns whether this process is to export spans."""
    return os.environ.get(names.ENV_TRACING) == "1"


def start(service: str) -> None:
    """Starts the export of spans, if it is wanted and has not been started.

    Args:
        service: the name of this kind of process in traces.

    Raises:
        Rejected: OpenTelemetry is not installed, or refuses the value of one of its variables.
    """
    global _exporter
    if _exporter is not None or not wanted():
        return
    try:
        from iris.tracing.exporter import Exporter  # an optional dependency, of 0.1 s

        _exporter = Exporter(service)
    except ImportError:
        raise Rejected(
            f"{names.ENV_TRACING}=1 needs OpenTelemetry; install it with: pip install"
            " 'iris-temporal[tracing]', or unset the variable"
        ) from None
    except ValueError as error:
        raise Rejected(f"an environment variable OTEL_… has a wrong value: {error}") from None


def emit(span: Span) -> None:
    """Exports a span soon, if the export has been started. Never raises: workflows call it."""
    if _exporter is None:
        return
    try:
        _exporter.emit(span)
    except Exception:
        logger.warning("a span cannot be exported", exc_info=True)


def flush() -> None:
    """Exports the spans that were emitted, for a process that ends at once."""
    if _exporter is not None:
        _exporter.flush()
