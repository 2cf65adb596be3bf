"""Traces of jobs on a real cluster, as a collector of OpenTelemetry gets them."""

import sys
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import USER, Cluster, a_home, eventually, until
from tests.fakes.collector import Collected, Collector, a_collector

pytestmark = pytest.mark.long

#: The trace of a pipeline that submits jobs, and its span.
PIPELINE = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with a_collector() as collector:
        yield collector


@pytest.fixture(scope="module")
def traced(collector: Collector) -> Iterator[Cluster]:
    """A cluster whose control plane was started with tracing on."""
    with a_home() as home:
        cluster = Cluster(home)
        Cluster.running.append(cluster)
        start = ("cluster", "start", "--local", "-d", "--name", "local", "--cpu", "4")
        try:
            cluster.iris(*start, **collector.variables)
            yield cluster
        finally:
            Cluster.running.remove(cluster)
            cluster.iris("cluster", "stop", "local", "--yes", code=None)
            cluster.clear()


def the_trace(collector: Collector, job: str) -> dict[str, list[Collected]]:
    """The spans of a job by their names, once the job's own span has come."""
    eventually(lambda: [each for each in collector.spans(f"{USER}/{job}") if each.name == "job"])
    found: dict[str, list[Collected]] = {}
    for span in collector.spans(f"{USER}/{job}"):
        found.setdefault(span.name, []).append(span)
    return found


def test_a_trace_goes_from_the_submission_to_the_exit_of_the_program_also_after_a_retry(
    traced: Cluster, collector: Collector
) -> None:
    """One trace, though client, two control planes and the program took part: the first control
    plane is killed while the second attempt runs.
    """
    (host,) = traced.host_ids()
    script = f"echo $TRACEPARENT >> seen; test $IRIS_ATTEMPT = 2 || exit 3; {until('go')}"
    traced.iris(
        *("submit", "-d", "-n", "retried", "--max-retries", "1", "--", "sh", "-c", script),
        **collector.variables,
        TRACEPARENT=f"00-{PIPELINE[0]}-{PIPELINE[1]}-01",
    )
    eventually(lambda: len(traced.lines("seen")) == 2)
    traced.kill("controller", "serve")
    eventually(lambda: traced.pid("controller", "serve"))
    traced.file("go").touch()
    traced.iris("wait", "retried")

    found = the_trace(collector, "retried")
    assert {span.trace for spans in found.values() for span in spans} == {PIPELINE[0]}
    (submit,), (job,) = found["submit"], found["job"]
    assert (submit.parent, submit.service) == (PIPELINE[1], "iris-client")
    assert (job.parent, job.service, job.error) == (submit.id, "iris-control-plane", "")
    attempts, programs = found["attempt"], found["program"]
    assert [each.parent for each in (*attempts, *found["wait for placement"])] == [job.id] * 4
    for name in ("set-up", "program"):
        assert [each.parent for each in found[name]] == [each.id for each in attempts]
    assert [each.attributes["iris.attempt"] for each in programs] == [1, 2]
    assert [each.attributes["iris.host"] for each in attempts] == [host] * 2
    assert (programs[0].attributes["iris.exit_code"], programs[1].error) == (3, "")
    # The programs got the spans that the control plane exported later.
    assert traced.lines("seen") == [f"00-{each.trace}-{each.id}-01" for each in programs]


def test_a_job_that_a_program_submits_joins_the_trace_of_the_program(
    traced: Cluster, collector: Collector
) -> None:
    """The program has neither the variables nor the library, only its `TRACEPARENT`."""
    submit = f"{sys.executable} -m iris.cli.main submit -n below -- true"
    traced.iris("submit", "-n", "above", "--", "sh", "-c", submit)
    above, below = the_trace(collector, "above"), the_trace(collector, "above/below")
    assert above["job"][0].parent == ""  # it was submitted without tracing
    assert "submit" not in below
    assert (below["job"][0].trace, below["job"][0].parent) == (
        above["job"][0].trace,
        above["program"][0].id,
    )


def test_a_cluster_without_traces_gives_its_programs_none(cluster: Cluster) -> None:
    """By default nothing changes, also in a pipeline that has a trace of its own."""
    given = f"00-{PIPELINE[0]}-{PIPELINE[1]}-01"
    script = "echo [$TRACEPARENT]"
    ran = cluster.iris("submit", "-n", "plain", "--", "sh", "-c", script, TRACEPARENT=given)
    assert ran.out.splitlines()[-1] == "[]"
