"""What people and programs see of the autoscaler, its groups and its slices. The keys of the JSON
are a promise.
"""

import sys
from typing import Any

import click
import pytest

from iris.autoscaling.missing_hosts import MissingHost
from iris.cli.cluster.config_changes import config_changes
from iris.cli.show.autoscaler import (
    LAST,
    autoscaler_json,
    autoscaler_text,
    blocked_groups,
    group_listing,
    problems,
    slice_counts,
)
from iris.cli.show.hosts import HOSTS
from iris.cli.show.listing import Listing
from iris.cli.show.slices import slice_json, slice_listing, slice_text
from iris.client.fleet.slices import SliceRow
from iris.config import load_config
from iris.messages.autoscaler import AutoscalerStatus, ScalingSettings
from iris.messages.scheduler import HostView
from iris.model.slice.provisioning import MachineState, SliceFault, SliceObservation
from iris.model.slice.scale_groups import ScaleGroup, SliceType
from iris.model.slice.scaling import Action, Availability, GroupStatus, Outlook
from iris.model.slice.status import SliceFacts, SliceState, SliceStatus, SliceStep
from tests.builders import a_host, a_request, at, some

NOON, LATER = "2026-01-01T12:00:00Z", "2026-01-01T12:01:00Z"


def plain(text: str) -> list[str]:
    return [line.rstrip() for line in click.unstyle(text).splitlines()]


def a_group(**changes: Any) -> ScaleGroup:
    settings: dict[str, Any] = {
        "name": "tpus",
        "type": SliceType.TPU_VM,
        "zones": ("west-a", "west-b"),
        "hosts": 4,
        "resources": some(cpu=8, memory=1, disk=1, device="tpu:v5litepod-16:4"),
        "accelerator_variant": "v5litepod-16",
        "max_slices": 3,
        "preemptible": True,
    }
    return ScaleGroup(**(settings | changes))


def some_facts(**changes: Any) -> SliceFacts:
    settings: dict[str, Any] = {
        "id": "tpus-1",
        "group": "tpus",
        "zone": "west-a",
        "state": SliceState.READY,
        "requested_at": at(0),
        "ready_at": at(60),
        "changed_at": at(60),
        "reason": "every host takes work",
    }
    return SliceFacts(**(settings | changes))


def a_status(**changes: Any) -> AutoscalerStatus:
    """One group that is out of quota, one job that waits for it."""
    settings: dict[str, Any] = {
        "groups": (
            GroupStatus(
                group="tpus",
                availability=Availability.QUOTA_EXCEEDED,
                why="quota used up",
                until=at(90),
                counts={SliceState.READY: 1, SliceState.FAILED: 1, SliceState.DRAINING: 0},
                demand=2,
                target=3,
            ),
        ),
        "slices": (some_facts(), some_facts(id="tpus-2", state=SliceState.FAILED)),
        "actions": (
            Action(at=at(0), group="tpus", what="scale_up", reason="for ada/train, in west-a"),
            Action(
                at=at(60),
                group="tpus",
                what="quota_exceeded",
                slice_id="tpus-2",
                reason="QUOTA: no more",
            ),
        ),
        "outlooks": (
            Outlook(
                example=a_request("k", task="ada/train", submitted_at=at(0)), message="no quota"
            ),
        ),
        "evaluated_at": at(60),
        "next_at": at(90),
        "settings": ScalingSettings(groups=(a_group(),)),
    }
    return AutoscalerStatus(**(settings | changes))


def test_the_autoscaler_shows_groups_outlooks_and_actions() -> None:
    """In this order; the last action first."""
    assert plain(autoscaler_text(a_status(), at(70))) == [
        "evaluated 10s ago; next evaluation within 20s",
        "",
        "GROUP  AVAILABILITY    SLICES             DEMAND  TARGET  REASON",
        "tpus   QUOTA_EXCEEDED  1 READY, 1 FAILED  2       3       quota used up (for 20s more)",
        "",
        "WAITING    AGE     OUTLOOK",
        "ada/train  1m 10s  no quota",
        "",
        "AGO     GROUP  ACTION          SLICE   REASON",
        "10s     tpus   quota_exceeded  tpus-2  QUOTA: no more",
        "1m 10s  tpus   scale_up        -       for ada/train, in west-a",
    ]


def test_a_paused_closing_or_blind_autoscaler_says_so_first() -> None:
    """Whoever wonders why nothing happens reads the first lines."""
    stray = SliceObservation(
        slice_id="stray", group="tpus", zone="west-a", state=MachineState.ACTIVE
    )
    troubled = a_status(
        paused="by ada",
        closing="stop",
        unreachable={"west-b": "timeout"},
        unowned=(stray,),
        held_hosts=12,
    )
    assert plain(autoscaler_text(troubled, at(70)))[1:6] == [
        "PAUSED    the autoscaler: by ada",
        "CLOSING   all slices are being deleted: stop",
        (
            "12 hosts are silent and most others do not answer either; none counts as lost, because"
            " the Temporal service or the network may be the cause"
        ),
        "zone west-b could not be listed: timeout",
        "no workflow manages slice stray in west-a",
    ]


def test_missing_hosts_are_problems_of_the_cluster() -> None:
    """`iris cluster status` prints each of these lines."""
    missing = (
        MissingHost(host_id="h1", incarnation="first", slice_id=each, since=at(0), looks=2)
        for each in ("tpus-1", "own")
    )
    created, joined = problems(a_status(missing=tuple(missing)))
    assert created.startswith(
        "the scheduler does not have host h1 of slice tpus-1, which is READY, since 2026-01-01"
        " 12:00:00 UTC"
    )
    assert created.endswith("if it lasts, delete the slice: iris slice delete tpus-1")
    assert joined.endswith("if it lasts, restart its agent")


def test_an_autoscaler_without_groups_or_before_its_first_evaluation_says_that() -> None:
    """An empty table would look like a fault."""
    assert plain(autoscaler_text(AutoscalerStatus(), at(0))) == [
        "the autoscaler only watches hosts: the cluster has no scale groups"
    ]
    young = a_status(groups=(), actions=(), outlooks=(), evaluated_at=None)
    assert plain(autoscaler_text(young, at(0))) == ["the autoscaler has not evaluated yet"]
    assert group_listing(AutoscalerStatus()).table(()) == "no scale groups"
    assert slice_listing([]).table([]) == "no slices"


def test_the_status_of_the_autoscaler_for_programs() -> None:
    """All times in ISO 8601, states as bare words, nothing where there is nothing."""
    assert autoscaler_json(a_status(unreachable={"west-b": "timeout"})) == {
        "evaluated_at": LATER,
        "next_at": "2026-01-01T12:01:30Z",
        "paused": None,
        "closing": None,
        "unreachable": {"west-b": "timeout"},
        "groups": [
            {
                "group": "tpus",
                "availability": "QUOTA_EXCEEDED",
                "why": "quota used up",
                "until": "2026-01-01T12:01:30Z",
                "demand": 2,
                "target": 3,
                "slices": {"READY": 1, "FAILED": 1},
            }
        ],
        "waiting": [
            {"example": "ada/train", "message": "no quota", "since": None, "possible": True}
        ],
        "actions": [
            {
                "slice": "",
                "at": NOON,
                "group": "tpus",
                "what": "scale_up",
                "reason": "for ada/train, in west-a",
            },
            {
                "slice": "tpus-2",
                "at": LATER,
                "group": "tpus",
                "what": "quota_exceeded",
                "reason": "QUOTA: no more",
            },
        ],
        "unowned": [],
    }


def test_groups_that_cannot_grow_are_blocked_and_those_that_need_not_are_not() -> None:
    """`cluster status` names only what somebody should look at."""
    statuses = tuple(
        GroupStatus(group=availability.lower(), availability=availability, why="because")
        for availability in Availability
    )
    assert blocked_groups(a_status(groups=statuses)) == {
        "quota_exceeded": "QUOTA_EXCEEDED: because",
        "backoff": "BACKOFF: because",
    }
    assert slice_counts(a_status()) == {"READY": 1, "FAILED": 1}


def test_a_group_shows_its_kind_its_limits_and_how_many_slices_it_has() -> None:
    """One that has failed is none any more; a group that was not evaluated yet has no numbers."""
    both = (a_group(), a_group(name="new"))
    listed = plain(group_listing(a_status()).table(both))
    assert listed == [
        (
            "NAME  TYPE    ACCELERATOR   HOSTS  SLICES  MIN  MAX  PRIORITY  PREEMPTIBLE "
            " AVAILABILITY    ZONES"
        ),
        (
            "tpus  tpu_vm  v5litepod-16  4      1       0    3    100       yes         "
            " QUOTA_EXCEEDED  west-a, west-b"
        ),
        (
            "new   tpu_vm  v5litepod-16  4      -       0    3    100       yes          -         "
            "      west-a, west-b"
        ),
    ]
    shown = group_listing(a_status()).json(a_group())
    assert shown == {
        "name": "tpus",
        "type": "tpu_vm",
        "hosts": 4,
        "zones": ["west-a", "west-b"],
        "min_slices": 0,
        "max_slices": 3,
        "buffer_slices": 0,
        "priority": 100,
        "preemptible": True,
        "accelerator": "v5litepod-16",
        "resources": {
            "cpu": 8.0,
            "memory_bytes": 2**30,
            "disk_bytes": 2**30,
            "device": {"kind": "tpu", "variant": "v5litepod-16", "count": 4},
        },
        "slices": {"READY": 1, "FAILED": 1},
        "availability": "QUOTA_EXCEEDED",
        "why": "quota used up",
    }


def views() -> list[HostView]:
    """Two hosts of slice tpus-1, one of which works, and one of another slice."""
    return [
        HostView(
            host=a_host("h0", slice_id="tpus-1"), free={"cpu": 3000}, running=("ada/train:0",)
        ),
        HostView(host=a_host("h1", slice_id="tpus-1"), free={}, running=()),
        HostView(
            host=a_host("h2", slice_id="other", address="10.0.0.12"), free={}, running=("ada/x:0",)
        ),
    ]


def test_a_list_of_slices_shows_where_they_are_and_what_runs_there() -> None:
    """One that joined by itself belongs to no group."""
    rows = [
        SliceRow.of(some_facts()),
        SliceRow(id="other", state=SliceState.READY, requested_at=at(0)),
    ]
    assert plain(slice_listing(views()).table(rows, at(90))) == [
        "ID      STATE  GROUP     ZONE    HOSTS  ADDRESS    RUNNING  AGE     REASON",
        "tpus-1  READY  tpus      west-a  2                 1        1m 30s  every host takes work",
        "other   READY  (joined)  -       1      10.0.0.12  1        1m 30s",
    ]
    made, joined = map(slice_listing(views()).json, rows)
    assert made == {
        "id": "tpus-1",
        "state": "READY",
        "group": "tpus",
        "zone": "west-a",
        "made": True,
        "hosts": ["h0", "h1"],
        "running": ["ada/train:0"],
        "requested_at": NOON,
        "reason": "every host takes work",
        "addresses": [],
    }
    assert joined["addresses"] == ["10.0.0.12"]
    assert (joined["made"], joined["group"], joined["zone"]) == (False, None, None)


def a_slice_status(**changes: Any) -> SliceStatus:
    settings: dict[str, Any] = {
        "id": "tpus-1",
        "state": SliceState.FAILED,
        "reason": "taken back",
        "hosts": (a_host("h0", some(cpu=4), slice_id="tpus-1", address="10.0.0.1"),),
        "size": 2,
        "facts": some_facts(state=SliceState.FAILED, fault=SliceFault.PREEMPTED),
        "steps": (
            SliceStep(at=at(0), state=SliceState.PROVISIONING, reason="asked"),
            SliceStep(at=at(60), state=SliceState.FAILED, reason="taken back"),
        ),
    }
    return SliceStatus(**(settings | changes))


def test_a_slice_shows_its_history_its_hosts_and_every_step() -> None:
    """With the time since the first step, which is what people compute in their heads."""
    assert plain(slice_text(a_slice_status(refused=("h9",)), views(), at(90))) == [
        "tpus-1  FAILED  taken back",
        (
            "scale group tpus, west-a, requested 1m 30s ago, ready after 1m, 1 of 2 host(s)"
            " reported, PREEMPTED"
        ),
        "stopped because their machines were not created for this slice: h9",
        "",
        "HOST  OFFERS  FREE   RUNNING",
        "h0    4 cpu   3 cpu  ada/train:0",
        "",
        "TIME (UTC)           AFTER  STATE         REASON",
        "2026-01-01 12:00:00  +0s    PROVISIONING  asked",
        "2026-01-01 12:01:00  +1m    FAILED        taken back",
    ]
    failed = plain(
        slice_text(a_slice_status(last_words="[iris-init] pulling\n[iris-init] FAILED"), [], at(90))
    )
    assert failed[-4:] == [
        "",
        "last console output:",
        "  [iris-init] pulling",
        "  [iris-init] FAILED",
    ]
    joined = plain(slice_text(a_slice_status(facts=None, hosts=(), steps=()), [], at(0)))
    assert joined == ["tpus-1  FAILED  taken back", "joined by itself, 0 of 2 host(s) reported"]


def test_a_slice_for_programs_has_every_key_whether_it_was_made_or_joined() -> None:
    """A script need not ask which kind it has before it reads."""
    shown = slice_json(a_slice_status(), views())
    assert shown == {
        "id": "tpus-1",
        "state": "FAILED",
        "reason": "taken back",
        "group": "tpus",
        "zone": "west-a",
        "made": True,
        "size": 2,
        "requested_at": NOON,
        "ready_at": LATER,
        "changed_at": LATER,
        "fault": "PREEMPTED",
        "hosts": [
            {
                "id": "h0",
                "address": "10.0.0.1",
                "resources": {"cpu": 4.0, "memory_bytes": 0, "disk_bytes": 0, "device": None},
                "running": ["ada/train:0"],
            }
        ],
        "refused": [],
        "last_words": [],
        "steps": [
            {"at": NOON, "state": "PROVISIONING", "reason": "asked"},
            {"at": LATER, "state": "FAILED", "reason": "taken back"},
        ],
    }
    joined = slice_json(a_slice_status(facts=None), [])
    assert joined.keys() == shown.keys()
    assert (joined["made"], joined["group"], joined["ready_at"]) == (False, None, None)


BEFORE = """
platform: {local: {}}
scale_groups:
  same: {type: local_vm, max_slices: 2}
  less: {type: local_vm, min_slices: 1, max_slices: 4, scale_down_delay: 5m}
  gone: {type: local_vm, max_slices: 1}
"""
AFTER = """
platform: {local: {}}
autoscaler: {evaluation_interval: 3s}
scale_groups:
  same: {type: local_vm, max_slices: 2}
  less: {type: local_vm, min_slices: 0, max_slices: 2, scale_down_delay: 10s}
  new: {type: local_vm, max_slices: 3}
"""


def test_a_reload_says_which_groups_come_go_and_become_other() -> None:
    """Old and new value of each; nothing of what stays."""
    lines = config_changes(load_config(BEFORE), load_config(AFTER))
    assert lines == [
        "+ new: 0 to 3 slices of 1 host(s)",
        "- gone: its slices are deleted when they are idle",
        "~ less: min_slices 1 → 0, max_slices 4 → 2, scale_down_delay 5m → 10s",
        "~ autoscaler: evaluation_interval 10s → 3s",
    ]
    assert config_changes(load_config(BEFORE), load_config(BEFORE)) == []
    teams = load_config(BEFORE + "\nteams: {vision: [ada]}\n")
    assert config_changes(load_config(BEFORE), teams) == ["~ teams"]


def test_only_the_last_actions_are_shown_to_people_and_all_to_programs() -> None:
    """A hundred lines would push the groups off the screen."""
    many = tuple(Action(at=at(number), group="g", what="scale_up") for number in range(50))
    status = a_status(actions=many, groups=(), outlooks=())
    lines = plain(autoscaler_text(status, at(50)))
    assert lines[3].startswith("1s ")
    assert len(lines) == 3 + LAST
    assert len(autoscaler_json(status)["actions"]) == 50


LONG = "tpu-v5litepod-16-spot"


@pytest.mark.parametrize(
    ("listing", "row", "headings"),
    [
        (
            HOSTS,
            HostView(
                host=a_host(
                    f"{LONG}-4fef0c89-w-0",
                    some(8, 1, 1, "tpu:v5litepod-16:4"),
                    slice_id=f"{LONG}-4fef0c89",
                ),
                free=some(8, 1, 1, "tpu:v5litepod-16:4").amounts(),
                running=("ada/a-long-name-of-a-job:0",),
            ),
            ["ID", "STATE", "FREE", "RUNNING"],
        ),
        (
            group_listing(AutoscalerStatus()),
            a_group(name=LONG),
            ["NAME", "ACCELERATOR", "SLICES", "MIN", "MAX", "AVAILABILITY"],
        ),
        (
            slice_listing([]),
            SliceRow(
                id=f"{LONG}-4fef0c89",
                state=SliceState.PROVISIONING,
                group=LONG,
                zone="us-central1-a",
                requested_at=at(0),
                reason="x" * 40,
            ),
            ["ID", "STATE", "HOSTS", "RUNNING", "AGE", "REASON"],
        ),
    ],
    ids=["hosts", "groups", "slices"],
)
def test_a_list_of_a_fleet_fits_80_columns(
    listing: Listing[Any],
    row: Any,
    headings: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The id of a host begins with that of its slice, and this with its group: they give way to
    what only the table says.
    """
    for name, value in {"COLUMNS": "80", "TERM": "xterm", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    listing.show([row], as_json=False)
    lines = plain(capsys.readouterr().out)
    assert (lines[0].split(), len(lines), max(map(len, lines)) <= 80) == (headings, 2, True)
