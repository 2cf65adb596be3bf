"""Explains why requests wait, and which requests can never be served."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

from iris.model.jobs import Band
from iris.model.requests import Placement, Request, Shape
from iris.scheduling.queue import Queue
from iris.scheduling.queue_position import NOTHING, Ends, Holders, standing
from iris.scheduling.refusals import Refusal, RefusalCode, Situation, in_line, reason
from iris.scheduling.scalable import Scalable

#: The most shapes whose reason is computed for one answer. For the others the answer refers to `iris explain`.
MOST_REASONS = 50
_MANY = Refusal(code=RefusalCode.QUEUED, message="many have asked at once; iris explain tells why this one waits")


class Inquiry:
    """Answers questions about the ledger at one moment. It builds the `Situation` once, when it is first needed."""

    def __init__(
        self,
        waiting: Queue,
        held: Queue,
        live: Mapping[str, Placement],
        situation: Callable[[], Situation],
        potential: Scalable,
    ) -> None:
        self._waiting = waiting
        self._held = held
        self._live = live
        self._put_together = situation
        self._potential = potential

    @cached_property
    def _situation(self) -> Situation:
        return self._put_together()

    @cached_property
    def _holders(self) -> Holders:
        return Holders(self._situation.fleet, self._live.values())

    def explain(self, key: str) -> Refusal:
        """Returns why the request with this key has no hosts."""
        return self.explain_all([key])[0]

    def explain_all(self, keys: Iterable[str]) -> list[Refusal]:
        """Returns why the requests with these keys have no hosts.

        Among the given requests of one user, band and shape, `ahead` is exact for the oldest and a lower bound for the others.
        Computing it for each would take too long.
        """
        keys = list(keys)
        asked = [request for key in dict.fromkeys(keys) if (request := self._waiting.get(key)) is not None]
        answers: dict[str, Refusal] = {}
        reasons: dict[tuple[Shape, Band], Refusal] = {}
        ends: dict[tuple[Shape, Band], Ends] = {}
        lines: dict[tuple[Shape, Band, str], list[Request]] = {}
        for request in sorted(asked, key=lambda each: (each.submitted_at, each.key)):
            lines.setdefault((request.shape, request.band, request.user), []).append(request)
        for (shape, band, _), line in lines.items():
            if len(reasons) == MOST_REASONS and (shape, band) not in reasons:
                answers.update((request.key, _MANY) for request in line)
                continue
            if (shape, band) not in reasons:
                reasons[shape, band] = self._reason(line[0])
            refusal = reasons[shape, band]
            if (shape, band) not in ends:
                ends[shape, band] = self._holders.ends(line[0]) if refusal.code is RefusalCode.BUSY else NOTHING
            stands = standing(self._waiting, self._situation, line[0], ends[shape, band])
            bound = "up to " if stands.least < stands.ahead else ""
            answers[line[0].key] = in_line(refusal, line[0], stands.ahead, bound=bound, why=stands.why)
            for place, request in enumerate(line[1:], start=1):
                answers[request.key] = in_line(refusal, request, stands.least + place, bound="at least ", why=stands.why)
        return [answers[key] if key in answers else self._not_waiting(key) for key in keys]

    def reasons(self, shapes: Iterable[Shape]) -> dict[Shape, Refusal]:
        """Returns for each of these shapes why its requests wait."""
        firsts = {shape: request for shape in shapes if (request := self._waiting.first(shape)) is not None}
        return {shape: self._reason(request) for shape, request in firsts.items()}

    def never(self, request: Request) -> Refusal | None:
        """Returns why no host, present or possible, could ever serve the request; None when some host could."""
        return self._potential.infeasible(self._situation.fleet, request)

    def _reason(self, request: Request) -> Refusal:
        return self._potential.explain(reason(self._situation, request), self._situation.fleet, request)

    def _not_waiting(self, key: str) -> Refusal:
        if key in self._held:
            return Refusal(code=RefusalCode.HELD, message="its user holds it", remedy="its user lets it go: iris release")
        text = "it has a host" if key in self._live else "the scheduler does not know of it yet, or no longer"
        return Refusal(code=RefusalCode.UNKNOWN, message=text)
