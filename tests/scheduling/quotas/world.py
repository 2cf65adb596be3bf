"""A small cluster with quotas, and what gangs hold of them, worked out the slow and simple way."""

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta

from iris.model.host.resources import DeviceKind
from iris.model.job.requests import Claim, Placement, Request
from iris.model.job.spec import Band
from iris.model.quotas import QuotaRule, QuotaRules
from iris.model.rules import Rules
from iris.scheduling.ledger.codec import LedgerState
from iris.scheduling.ledger.ledger import Ledger
from tests.builders import a_host, a_request, at, some

#: Two teams, and `eve`, who is in none.
TEAMS = {"vision": ("ada", "ben"), "speech": ("cy", "di")}
USERS = ("ada", "ben", "cy", "di", "eve")


def a_quota(name: str, nominal: dict[str, int] | None = None, **settings: object) -> QuotaRule:
    """A quota of the team of this name, unless it is for somebody else."""
    holder = {} if settings.keys() & {"user", "tag"} else {"team": name}
    return QuotaRule.model_validate({"name": name, "nominal": nominal or {}, **holder, **settings})


def quotas(*rules: QuotaRule, **limits: int) -> QuotaRules:
    """These quotas, and these named limits."""
    teams = TEAMS if any(rule.team for rule in rules) else {}
    return QuotaRules(quotas=rules, limits=limits, teams=teams)


def a_ledger(rules: QuotaRules, hosts: int = 1, cpu: float = 8, **settings: object) -> Ledger:
    """A ledger with hosts that have cores only. Gangs may be evicted at once."""
    settings = {"min_run_time": timedelta(0), **settings}
    ledger = Ledger(LedgerState(rules=Rules.model_validate(settings), quotas=rules))
    ledger.hosts_up([a_host(f"h{number}", some(cpu=cpu)) for number in range(hosts)])
    return ledger


def ask(
    ledger: Ledger,
    name: str,
    user: str = "ada",
    cpu: float = 1,
    band: Band = Band.INTERACTIVE,
    seconds: float = 0,
    tags: tuple[str, ...] = (),
    **limits: int,
) -> Request:
    """Asks for one task with so many cores."""
    request = a_request(
        f"{user}/{name}@1/run",
        some(cpu=cpu),
        user=user,
        task=f"{user}/{name}",
        owner=f"c/job/{user}/{name}",
        band=band,
        submitted_at=at(seconds),
        claim=Claim(tags, tuple(sorted(limits.items()))),
    )
    ledger.ask(request)
    return request


def running(ledger: Ledger) -> list[str]:
    """The tasks that have hosts, in order."""
    return sorted(placement.task for placement in ledger.live.values())


def held(rule: QuotaRule, live: Iterable[Placement]) -> Counter[str]:
    """What the gangs hold of a quota, which is not one of each user."""
    found: Counter[str] = Counter()
    for placement in live:
        of_team = rule.team and placement.user in TEAMS[rule.team]
        of_tag = rule.tag and rule.tag in placement.claim.tags
        if (of_team or of_tag or rule.user == placement.user) and (
            not rule.bands or placement.band in rule.bands
        ):
            found.update(amounts(placement))
    return found


def amounts(placement: Placement) -> dict[str, int]:
    """What one gang holds, by the names of quotas."""
    hosts, device = len(placement.seats), placement.resources.device
    found = {
        "hosts": hosts,
        "cpus": hosts * placement.resources.cpu_millis,
        "memory": hosts * placement.resources.memory_bytes,
        **{f"limits.{name}": amount for name, amount in placement.claim.limits},
    }
    if device is not None:
        found["chips" if device.kind is DeviceKind.TPU else "gpus"] = hosts * device.count
    return found
