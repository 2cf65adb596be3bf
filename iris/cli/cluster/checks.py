"""Formats health checks and the states of hosts and their agents, for people and for programs.

The keys of the JSON are a public contract (tests/cli).
"""

from datetime import timedelta

from iris.cli.show.columns import Column
from iris.cli.show.listing import Listing
from iris.client.operate.debugging import Check, WorkerRow

CHECKS: Listing[Check] = Listing(
    Column("CHECK", "name"),
    Column("RESULT", "ok", text=lambda ok: "ok" if ok else "FAILED"),
    Column(
        "TOOK",
        "took_seconds",
        lambda check: check.took,
        lambda took: timedelta(seconds=took),
        lambda took: round(took, 3),
    ),
    Column("DETAILS", "said", absent="", wraps=True),
)
WORKERS: Listing[WorkerRow] = Listing(
    Column("HOST", "host"),
    Column("STATE", "state"),
    Column("SLICE", "slice"),
    Column("REPORTED", "reported_at", absent="never"),
    Column("UP", "started_at"),
    Column("RUNNING", "running", text=len, absent="0"),
    Column("REASON", "reason", absent="", wraps=True),
    keys="host slice state reason reported_at started_at running",
    empty="no hosts and no agents",
)
