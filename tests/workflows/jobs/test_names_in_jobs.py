"""What a name without a user means to a program that runs in a job."""

import pytest

from iris.client.build.options import job_spec
from iris.client.jobs.find import resolve_id
from iris.client.jobs.submit.dependencies import among, bound
from iris.model import names
from iris.model.errors import NotFound
from iris.model.job.children import Parent
from iris.model.job.dependencies import Condition, parse_dependencies
from tests.builders import a_spec
from tests.harness import Cluster, Held, child, dev_server_cluster, succeeds


async def first_run(cluster: Cluster, job: str) -> str:
    described = await cluster.job(job).describe()
    return described.raw_description.workflow_execution_info.first_run_id


async def inside(cluster: Cluster, job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, this program is as one that runs in the job."""
    monkeypatch.setenv("IRIS_USER", "ada")
    monkeypatch.setenv(names.ENV_JOB_ID, job)
    monkeypatch.setenv(names.ENV_CLUSTER, cluster.name)
    key = names.attempt_key(names.attempt_id(job, 0, 1), await first_run(cluster, job))
    monkeypatch.setenv(names.ENV_ATTEMPT_KEY, key)


async def meant(cluster: Cluster, text: str) -> str:
    return await resolve_id(cluster.users.connection, text)


async def test_a_bare_name_means_the_jobs_own_child_then_those_of_the_jobs_above_then_the_users_job(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`iris submit -n kid …; iris wait kid` names one job, in a script that runs by hand and in a
    job.
    """
    await cluster.join(program=Held())
    top = await cluster.submit("top")
    for name in ("kid", "other", "third"):
        await cluster.submit(name)
    middle = await child(cluster, top, "middle")
    for name in ("kid", "other"):
        await child(cluster, top, name)
    await child(cluster, middle, "kid")
    await inside(cluster, middle, monkeypatch)

    assert await meant(cluster, "kid") == "ada/top/middle/kid"
    assert await meant(cluster, "other") == "ada/top/other"
    assert await meant(cluster, "third") == "ada/third"
    assert await meant(cluster, "nowhere") == "ada/nowhere"
    await inside(cluster, top, monkeypatch)
    assert [await meant(cluster, text) for text in ("kid", "kid#2", "kid:3", "kid#2:3")] == [
        "ada/top/kid"
    ] * 4
    assert [await meant(cluster, text) for text in ("ada/kid", "bob/kid")] == ["ada/kid", "bob/kid"]
    monkeypatch.setenv(names.ENV_CLUSTER, "another")
    assert await meant(cluster, "kid") == "ada/kid"


async def test_a_child_of_an_earlier_run_of_the_job_is_not_meant(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script has changed since: today `prepare` is a job of its own."""
    await cluster.join(program=succeeds)
    first = await cluster.submit("top")
    await cluster.end(await child(cluster, first, "prepare"))
    await cluster.end(first)
    await cluster.end(await cluster.submit("prepare"))
    await inside(cluster, await cluster.submit("top"), monkeypatch)

    assert await meant(cluster, "prepare") == "ada/prepare"


async def test_a_handle_finds_which_job_is_meant_when_it_is_asked(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made before the child is submitted, or after, and asks nothing until then."""
    await cluster.join(program=Held())
    top = await cluster.submit("top")
    await inside(cluster, top, monkeypatch)
    kid, full = cluster.users.job("kid"), cluster.users.job("ada/kid")
    own = await cluster.submit("kid")
    assert (await kid.status()).id == own
    await child(cluster, top, "kid")

    assert (kid.id, (await kid.status()).id, kid.id) == ("ada/kid", "ada/top/kid", "ada/top/kid")
    assert (await full.status()).id == own


@pytest.mark.long
async def test_a_misspelt_child_is_suggested(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name that the user has to write is that of the child. The handle finds the child that is
    submitted then.
    """
    async with dev_server_cluster() as cluster:
        await cluster.join(program=Held())
        top = await cluster.submit("top")
        await child(cluster, top, "preparation")
        await inside(cluster, top, monkeypatch)
        misspelt = cluster.users.job("preperation")

        with pytest.raises(NotFound, match=r"did you mean ada/top/preparation\?"):
            await misspelt.status()
        await child(cluster, top, "preperation")
        assert (await misspelt.status()).id == "ada/top/preperation"


async def test_a_job_waits_for_the_child_that_it_names(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the command line, in Python by name, and by a handle that was not asked yet. A full name
    is another job.
    """
    await cluster.submit("kid")
    top = await cluster.submit("top")
    kid = await child(cluster, top, "kid")
    await inside(cluster, top, monkeypatch)
    after = ["kid", cluster.users.job("kid"), "ada/kid"]
    specs = [job_spec("ada", ("true",), name="next", after=[each]) for each in after]
    specs.append(a_spec(after=parse_dependencies("kid", Condition.OK, "ada", in_job=True)))

    found = [(await bound(cluster.users.connection, spec)).after[0] for spec in specs]
    run = await first_run(cluster, kid)
    assert [each.job for each in found] == [kid, kid, "ada/kid", kid]
    assert [each.run_id == run for each in found] == [True, True, False, True]


def test_of_jobs_that_are_submitted_together_in_a_job_a_full_name_means_another() -> None:
    """A bare one means the one of the same file, which becomes a child too."""
    parent = Parent(job="ada/top", run_id="r", current_run="r", task=0, attempt=1, work="w")
    kid, after = (
        a_spec(name="kid", parent=parent),
        parse_dependencies("kid,ada/kid", Condition.OK, "ada", in_job=True),
    )
    (_, found), problems = among(
        [("1", kid), ("2", a_spec(name="next", parent=parent, after=after))]
    )

    assert ([each.job for each in found.after], problems) == (["ada/top/kid", "ada/kid"], [])
