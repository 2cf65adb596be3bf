"""Explains why requests wait, and which requests can never be served."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

from iris.model.job.requests import Claim, Placement, Request, Shape
from iris.model.job.spec import Band
from iris.scheduling.placement.cluster_state import ClusterState
from iris.scheduling.placement.queue import Queue
from iris.scheduling.placement.refusals import IN_QUEUE, INFEASIBLE, Refusal, RefusalCode
from iris.scheduling.placement.usage import Usage
from iris.scheduling.reasons import why_waiting
from iris.scheduling.reasons.queue_position import (
    NOTHING,
    HostHolders,
    Releases,
    UserTurn,
    first_ahead,
    in_order,
    position,
    turns_of_users,
)
from iris.scheduling.reasons.quota_reasons import QuotaReasons

#: The limit on shapes for which one answer says why their requests wait. For further shapes, the
#: answer refers to `iris explain`.
MOST_REASONS = 50
#: The maximum number of checks for the reasons of one answer, which take half a second. A check
#: compares one constraint or amount with one host. The first reason is computed in any case.
MOST_CHECKS = 500_000
#: The maximum number of comparisons of users to compute the queue positions of the requests in one
#: answer. They take half a second. The first position is computed in any case.
MOST_COMPARED = 100_000
#: The codes of the reasons that come before quotas: a request with one of them is not checked
#: against quotas.
_BEFORE_QUOTAS = INFEASIBLE | {RefusalCode.PAUSED}
#: The answer for requests beyond `MOST_REASONS` or `MOST_CHECKS`.
_MANY = Refusal(
    code=RefusalCode.QUEUED,
    message="many requests arrived at once; run iris explain to see why this one waits",
)


class WaitReasons:
    """Computes the reasons why requests wait, for one moment.

    Args:
        state: builds the state of the cluster. It is called once, for the first answer that needs
            it.
        usage: builds the use of each user. It, too, is called at most once.
        quotas: computes why quotas stop requests; None if there are no quotas.
    """

    def __init__(
        self,
        waiting: Queue,
        held: Queue,
        live: Mapping[str, Placement],
        state: Callable[[], ClusterState],
        usage: Callable[[], Usage],
        quotas: QuotaReasons | None = None,
    ) -> None:
        self._waiting = waiting
        self._held = held
        self._live = live
        self._make_state = state
        self._make_usage = usage
        self._quotas = quotas

    @cached_property
    def _state(self) -> ClusterState:
        return self._make_state()

    @cached_property
    def _usage(self) -> Usage:
        return self._make_usage()

    @cached_property
    def _holders(self) -> HostHolders:
        return HostHolders(self._state.host_index, self._live.values())

    @cached_property
    def _users(self) -> int:
        """The most comparisons of users for one position."""
        return sum(len(users) for users in self._usage.recent.values()) + sum(
            len(self._waiting.users(band)) for band in Band
        )

    def _checks(self, shape: Shape) -> int:
        """Returns the most checks for the reason of a shape."""
        return (1 + len(shape.constraints)) * len(self._state.host_index.hosts)

    def explain_all(self, keys: Iterable[str]) -> list[Refusal]:
        """Returns why the requests with these keys have no hosts.

        If several of the requests have the same user, band, shape and claim, `ahead` is exact for
        the oldest of them and a lower bound for the others. To compute it for each would take too
        long.
        """
        keys = list(keys)
        requests = [
            request
            for key in dict.fromkeys(keys)
            if (request := self._waiting.get(key)) is not None
        ]
        answers: dict[str, Refusal] = {}
        reasons: dict[tuple[Shape, Band], Refusal] = {}
        releases: dict[tuple[Shape, Band], Releases] = {}
        lines: dict[tuple[Shape, Band, str, Claim], list[Request]] = {}
        for request in sorted(requests, key=lambda each: (each.submitted_at, each.key)):
            alike = (request.shape, request.band, request.user, request.claim)
            lines.setdefault(alike, []).append(request)
        checks = 0
        for number, ((shape, band, _, _), line) in enumerate(lines.items()):
            if (shape, band) not in reasons:
                checks += self._checks(shape)
                if reasons and (len(reasons) >= MOST_REASONS or checks > MOST_CHECKS):
                    answers.update((request.key, _MANY) for request in line)
                    continue
                refusal = reasons[shape, band] = why_waiting.reason(self._state, line[0])
                releases[shape, band] = (
                    self._holders.releases(line[0]) if refusal.code is RefusalCode.BUSY else NOTHING
                )
            refusal = reasons[shape, band]
            if number and number * self._users > MOST_COMPARED:
                answers.update((request.key, refusal) for request in line)
                continue
            if (stopped := self._stopped(line[0], refusal)) is not None:
                answers.update((request.key, stopped) for request in line)
                continue
            answers.update(self._in_queue(line, refusal, releases[shape, band]))
            oldest = answers[line[0].key]
            if (
                len(keys) == 1
                and oldest.ahead
                and refusal.code in IN_QUEUE
                and self._waiting.lines <= MOST_COMPARED
            ):
                first = first_ahead(self._waiting, self._usage, line[0], releases[shape, band])
                answers[line[0].key] = oldest.model_copy(update={"ahead_first": first})
        return [answers[key] if key in answers else self._not_waiting(key) for key in keys]

    def by_shape(self, shapes: Iterable[Shape]) -> dict[Shape, Refusal]:
        """Returns for each of these shapes why its requests wait. The last shapes are left out if
        they would exceed `MOST_CHECKS`.
        """
        shapes = list(shapes)
        firsts = self._waiting.firsts(set(shapes))
        found: dict[Shape, Refusal] = {}
        checks = 0
        for shape in (shape for shape in shapes if shape in firsts):
            checks += self._checks(shape)
            if found and checks > MOST_CHECKS:
                break
            found[shape] = why_waiting.reason(self._state, firsts[shape])
        return found

    def by_line(
        self, requests: Iterable[Request], refusal: Refusal
    ) -> list[tuple[Refusal, list[Request]]]:
        """Divides requests of one shape by the reason why they wait. Quotas stop single lines.

        Args:
            refusal: the reason without quotas.
        """
        lines: dict[tuple[str, Band, Claim], list[Request]] = {}
        for request in requests:
            lines.setdefault((request.user, request.band, request.claim), []).append(request)
        divided = [(self.of_line(line[0], refusal), line) for line in lines.values()]
        stopped = [each for each in divided if each[0] is not refusal]
        others = [request for found, line in divided if found is refusal for request in line]
        return [*([(refusal, others)] if others else []), *stopped]

    def of_line(self, request: Request, refusal: Refusal) -> Refusal:
        """Returns why a request and the rest of its line wait: a quota, or the given reason of the
        shape.
        """
        return self._stopped(request, refusal) or refusal

    def in_order(self, offset: int, limit: int, only: Band | None = None) -> list[Request]:
        """Returns at most `limit` waiting requests from `offset` on, in the order of service.

        Args:
            only: only the requests of this band.
        """
        return in_order(self._waiting, self._usage, offset, limit, only)

    def turns_of_users(self, band: Band) -> list[UserTurn]:
        """Returns the users who wait in the band, the user with the next turn first."""
        return turns_of_users(self._waiting, self._usage, band)

    def with_positions(
        self, reasons: Iterable[tuple[Refusal, Sequence[Request]]]
    ) -> dict[str, Refusal]:
        """Returns the reasons of requests that wait for their turn, with their positions, by key.
        The last requests are left out if they would exceed `MOST_COMPARED`.

        Args:
            reasons: each reason, and requests of one shape that wait for it, in the order of the
                queue.
        """
        found: dict[str, Refusal] = {}
        compared = 0
        for refusal, requests in reasons:
            lines: dict[tuple[Band, str], list[Request]] = {}
            for request in requests if refusal.code in IN_QUEUE else ():
                lines.setdefault((request.band, request.user), []).append(request)
            releases: dict[Band, Releases] = {}
            for (band, _), line in lines.items():
                if compared and compared + self._users > MOST_COMPARED:
                    return found
                compared += self._users
                if band not in releases:
                    releases[band] = (
                        self._holders.releases(line[0])
                        if refusal.code is RefusalCode.BUSY
                        else NOTHING
                    )
                found.update(self._in_queue(line, refusal, releases[band]))
        return found

    def _in_queue(
        self, line: Sequence[Request], refusal: Refusal, releases: Releases
    ) -> dict[str, Refusal]:
        """Returns the refusals of the requests of one user, band and shape, with their positions,
        by key.
        """
        first = line[0]
        found = position(self._waiting, self._usage, first, releases)
        answers = {
            request.key: _with_position(
                refusal, request, found.least + place, "at least ", found.why
            )
            for place, request in enumerate(line)
        }
        bound = "up to " if found.least < found.ahead else ""
        return {**answers, first.key: _with_position(refusal, first, found.ahead, bound, found.why)}

    def infeasible(self, request: Request) -> Refusal | None:
        """Returns why no host, present or to be created, could ever serve the request, or why
        quotas can never allow it; None if it can be served.
        """
        refusal = why_waiting.infeasible(self._state.host_index, request, self._state.catalog)
        return refusal or (self._quotas.never(request) if self._quotas is not None else None)

    def _stopped(self, request: Request, refusal: Refusal) -> Refusal | None:
        """Returns why a quota stops the request, if that is its reason to wait.

        Args:
            refusal: the reason without quotas.
        """
        if self._quotas is None or refusal.code in _BEFORE_QUOTAS:
            return None
        return self._quotas.refusal(request)

    def _not_waiting(self, key: str) -> Refusal:
        if key in self._held:
            return Refusal(
                code=RefusalCode.HELD, message="its job is held", remedy="release it: iris release"
            )
        text = "it already has hosts" if key in self._live else "the scheduler has no such request"
        return Refusal(code=RefusalCode.UNKNOWN, message=text)


def _with_position(refusal: Refusal, request: Request, ahead: int, bound: str, why: str) -> Refusal:
    """Returns the refusal with the number of requests that are served before this one.

    Args:
        bound: "at least " or "up to " if the number is not exact.
        why: why another user's gang comes first; empty if none does.
    """
    message = refusal.message
    if refusal.code in IN_QUEUE:
        requests = (
            f"{ahead} request{'' if ahead == 1 else 's'} ahead of it in band {request.band} and"
            " above"
        )
        place = f"{bound}{requests}" if ahead else f"first in the queue of band {request.band}"
        message = f"{message}; {place}{'; ' if why else ''}{why}"
    return refusal.model_copy(update={"message": message, "ahead": ahead})
