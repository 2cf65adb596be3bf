"""Workloads from files: traces of Iris, and made files of the form of the public traces."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from iris.model.errors import InvalidValue
from iris.model.host.constraints import SCALE_GROUP
from iris.model.host.resources import Device, DeviceKind, Resources
from iris.model.job.spec import Band
from iris.model.units import GIB, MIB
from iris.simulation.synthetic import read_synthetic, synthetic_trace
from iris.simulation.trace import GangTrace, Run, to_lines
from iris.simulation.workload import PublicFormat, format_of, read_workload
from iris.usage.records import UseEnd
from tests.builders import some

E = UseEnd
HELIOS = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
)
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
    "scheduled_time"
)
TASKS = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type"


def gpus(count: int, variant: str = "auto") -> Device:
    return Device(kind=DeviceKind.GPU, variant=variant, count=count)


def gangs(text: str, gpu: str = "") -> tuple[GangTrace, ...]:
    return read_workload("file", text, gpu).gangs


def philly(*jobs: dict[str, Any]) -> str:
    whole = {"vc": "v", "user": "u", "status": "Pass", "submitted_time": "2017-10-07 01:00:00"}
    return json.dumps(
        [{**whole, "jobid": f"application_{at}", **job} for at, job in enumerate(jobs)]
    )


def tried(start: str | None, end: str | None, *machines: int) -> dict[str, Any]:
    """An attempt on machines with so many GPUs each, at these times of one day."""
    day = "2017-10-07 "
    detail = [
        {"ip": f"m{number}", "gpus": [f"gpu{gpu}" for gpu in range(count)]}
        for number, count in enumerate(machines)
    ]
    start, end = (text if text in (None, "None") else day + str(text) for text in (start, end))
    return {"start_time": start, "end_time": end, "detail": detail}


def test_a_trace_of_iris_is_read_as_it_is() -> None:
    """Whatever has written it."""
    trace = synthetic_trace(read_synthetic("jobs=5"))
    assert read_workload("file", "".join(to_lines(trace))) == trace


def test_philly_jobs_have_attempts_and_machines() -> None:
    """The attempts before the last one failed, and the job's status is that of the last one."""
    retried = {
        "attempts": [
            tried("01:00:30", "01:01:30", 8, 4),
            tried("01:02:00", "01:05:00", 8, 4),
        ],
        "status": "Killed",
    }
    text = philly({"attempts": [], "user": "x"}, retried)
    (gang,) = gangs(text, gpu="P100")
    assert gang == GangTrace(
        id="job-1",
        user="user-1",
        at=0,
        resources=Resources(cpu_millis=0, device=gpus(8, "P100")),
        tasks=2,
        group_by=SCALE_GROUP,
        runs=(Run(seconds=60, end=E.FAILED), Run(seconds=180, end=E.CANCELLED)),
        waited=30,
    )
    heading = read_workload("file", text, "P100").heading
    assert heading.begins == datetime(2017, 10, 7, 1, tzinfo=UTC)
    assert heading.source == "Philly (Microsoft); left out, without a run: 1"


def test_philly_jobs_that_still_run_are_cut_off_and_unknown_times_left_out() -> None:
    """Both are in the log: null, or the text None."""
    running = {"attempts": [tried("None", "01:30:00", 1), tried("02:00:00", None, 1)]}
    other = {"attempts": [tried("01:10:00", "03:00:00", 0)], "status": "Failed", "user": "w"}
    first, second = gangs(philly(running, other))
    assert (first.runs, first.waited) == ((Run(seconds=3600),), 3600)
    assert first.resources.device == gpus(1)
    assert (second.user, second.runs, second.resources.device) == (
        "user-2",
        (Run(seconds=110 * 60, end=E.FAILED),),
        None,
    )


def test_helios_jobs_have_their_resources_on_all_nodes_together() -> None:
    """A job on two nodes with sixteen GPUs has eight on each."""
    text = "\n".join(
        (
            HELIOS,
            "7,ua,vcx,16,32,2,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:42:01,2020-06-09 18:52:01,600,60",
            "8,ub,vcx,0,4,1,TIMEOUT,2020-06-09 18:41:02,2020-06-09 18:41:02,2020-06-09 18:41:12,10,0",
            "9,ua,vcx,1,1,1,CANCELLED,2020-06-09 18:41:03,,2020-06-09 18:41:12,,",
            "10,ua,vcx,1,1,1,NODE_FAIL,2020-06-09 18:41:04,2020-06-09 18:41:04,2020-06-09 18:41:14,10,0",
        )
    )
    trace = read_workload("file", text, gpu="V100")
    two, cpu, lost = trace.gangs
    assert (two.tasks, two.group_by, two.waited) == (2, SCALE_GROUP, 60)
    assert two.resources == some(cpu=16, device=gpus(8, "V100"))
    assert two.runs == (Run(seconds=600),)
    assert (cpu.resources, cpu.runs) == (some(cpu=4), (Run(seconds=10, end=E.FAILED),))
    assert [gang.user for gang in trace.gangs] == ["user-1", "user-2", "user-1"]
    assert lost.runs == (Run(seconds=10, end=E.CANCELLED),)
    assert [gang.at for gang in trace.gangs] == [0, 1, 3]
    assert trace.heading.ends - trace.heading.begins == timedelta(seconds=661)


@pytest.mark.parametrize("heading", [f"{TASKS}\n", ""])
def test_alibaba_tasks_of_2020_have_instances(heading: str) -> None:
    """The table is published without the names of its columns. Half a GPU is a whole one."""
    text = (
        heading + "j1,worker,2.0,Terminated,100.0,160.0,600.0,29.296875,50.0,T4\n"
        "j1,ps,1.0,Terminated,100.0,160.0,400.0,,,\n"
        "j2,tensorflow,1.0,Running,110.0,,100.0,1,200.0,MISC\n"
        "j3,tensorflow,1.0,Waiting,,,100.0,1,100.0,\n"
        "j4,tensorflow,1.0,Failed,120.0,400.0,100.0,1,0.0,\n"
    )
    worker, other, server, running, failed = gangs(text)
    assert worker.job == other.job == server.job == "job-1"
    assert len({worker.id, other.id, server.id}) == 3
    assert worker.resources == other.resources
    assert worker.resources.cpu_millis == 6000
    assert worker.resources.memory_bytes == round(29.296875 * GIB)
    assert worker.resources.device == gpus(1)
    assert server.resources == some(cpu=4)
    assert (running.at, running.runs) == (10, (Run(seconds=290),))
    assert running.resources.device == gpus(2)
    assert failed.runs == (Run(seconds=280, end=E.FAILED),)
    assert failed.resources.device is None
    assert {gang.waited for gang in (worker, running, failed)} == {None}


def test_alibaba_pods_of_2023_have_bands_and_variants() -> None:
    """A part of a GPU is a whole one, and pods that were never scheduled are left out."""
    text = "\n".join(
        (
            PODS,
            "p0,12000,16384,1,460,V100M16|V100M32,LS,Running,1000,1900,1100",
            "p1,88000,327680,8,1000,,BE,Failed,1005,2005,1005",
            "p2,8000,1024,0,0,nan,Burstable,Succeeded,1010,1020,1010",
            "p3,8000,1024,1,1000,G2|T4,BE,Pending,1011,1020,",
            "p4,8000,1024,1,1000,G2|T4,BE,Succeeded,1012,1020,1012",
        )
    )
    service, batch, small, last = gangs(text)
    assert service == GangTrace(
        id="job-1",
        user="user-1",
        band=Band.PRODUCTION,
        at=0,
        resources=Resources(cpu_millis=12000, memory_bytes=16384 * MIB, device=gpus(1, "V100")),
        runs=(Run(seconds=800),),
        waited=100,
    )
    assert (batch.band, batch.resources.device) == (Band.BATCH, gpus(8))
    assert batch.runs == (Run(seconds=1000, end=E.FAILED),)
    assert (small.band, small.resources.device) == (Band.INTERACTIVE, None)
    assert last.resources.device == gpus(1, "G2,T4")
    assert {gang.resources.device for gang in gangs(text, gpu="H100")} == {
        gpus(1, "H100"),
        gpus(8, "H100"),
        None,
    }


@pytest.mark.parametrize(
    ("head", "found"),
    [
        ('[{"status": "Pass", "jobid": "application_1"}]', PublicFormat.PHILLY),
        (f"\ufeff{HELIOS}\r\n", PublicFormat.HELIOS),
        (TASKS, PublicFormat.ALIBABA_2020),
        ("j,t,1.0,Failed,1.0,2.0,3.0,4.0,5.0,T4", PublicFormat.ALIBABA_2020),
        (PODS, PublicFormat.ALIBABA_2023),
        ("[1, 2]", None),
        ("a,b,c", None),
        ("", None),
    ],
)
def test_the_format_is_found_by_the_first_line(head: str, found: PublicFormat | None) -> None:
    """Nobody has to name it."""
    assert format_of(head) is found


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a,b,c\n1,2,3", ("file", "iris usage --trace", "helios")),
        ("{}", ("file, line 1",)),
        (philly({"attempts": [tried("01:00:00", "02:00:00", 1, 1)]}), ("file", "--gpu H100")),
        (philly(), ("file",)),
        (philly({"attempts": [tried("noon", "02:00:00", 1)]}), ("application_0", "noon")),
        ('[{"jobid": 3}]', ("0.jobid",)),
        (f"{HELIOS}\n", ("file", "no job")),
        (HELIOS.replace("queue", "waited"), ("queue",)),
        (f"{PODS}\np,x,1,1,1,,LS,Running,1,2,1", ("file, line 2", "'x' as cpu_milli")),
        (f"{PODS}\np,1,-4,1,1,,LS,Running,1,2,1", ("file, line 2", "'-4' as memory_mib")),
    ],
)
def test_a_file_that_is_no_workload_is_refused_with_the_place_and_the_remedy(
    text: str, named: tuple[str, ...]
) -> None:
    """Such files are large, and come from elsewhere."""
    with pytest.raises(InvalidValue) as refused:
        read_workload("file", text)
    for each in named:
        assert each in str(refused.value)
