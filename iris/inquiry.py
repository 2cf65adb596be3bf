"""Questions to the scheduler's book: why somebody waits, and whether anybody ever could be served."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

from iris.gangs import Placement, Request, Shape
from iris.jobs import Band
from iris.potential import Potential
from iris.refusals import Refusal, RefusalCode, Situation, in_line, reason
from iris.waiting import Waiting

#: Shapes whose reason is worked out for one answer; the users of the others ask again if they want to know.
MOST_REASONS = 50
_MANY = Refusal(code=RefusalCode.QUEUED, message="many have asked at once; iris explain tells why this one waits")


class Inquiry:
    """The book at one moment, for those who ask. What they are up against is put together once, when it is first needed."""

    def __init__(
        self,
        waiting: Waiting,
        held: Waiting,
        live: Mapping[str, Placement],
        situation: Callable[[], Situation],
        potential: Potential,
    ) -> None:
        self._waiting = waiting
        self._held = held
        self._live = live
        self._put_together = situation
        self._potential = potential

    @cached_property
    def _situation(self) -> Situation:
        return self._put_together()

    def explain(self, key: str) -> Refusal:
        """Why the request with this key has no hosts."""
        return self.explain_all([key])[0]

    def explain_all(self, keys: Iterable[str]) -> list[Refusal]:
        """The same for several. Of a user's requests that wait for the same, `ahead` is exact for the oldest of these keys, and
        the least that it can be for the others: to work it out for each would take too long."""
        keys = list(keys)
        asked = [request for key in dict.fromkeys(keys) if (request := self._waiting.get(key)) is not None]
        answers: dict[str, Refusal] = {}
        reasons: dict[tuple[Shape, Band], Refusal] = {}
        lines: dict[tuple[Shape, Band, str], list[Request]] = {}
        for request in sorted(asked, key=lambda each: (each.submitted_at, each.key)):
            lines.setdefault((request.shape, request.band, request.user), []).append(request)
        for (shape, band, _), line in lines.items():
            if len(reasons) == MOST_REASONS and (shape, band) not in reasons:
                answers.update((request.key, _MANY) for request in line)
                continue
            if (shape, band) not in reasons:
                reasons[shape, band] = self._reason(line[0])
            ahead = self._waiting.ahead(line[0], self._situation.use[band])
            for place, request in enumerate(line):
                answers[request.key] = in_line(reasons[shape, band], request, ahead + place, exactly=place == 0)
        return [answers[key] if key in answers else self._not_waiting(key) for key in keys]

    def reasons(self, shapes: Iterable[Shape]) -> dict[Shape, Refusal]:
        """Why those wait who want this."""
        firsts = {shape: request for shape in shapes if (request := self._waiting.first(shape)) is not None}
        return {shape: self._reason(request) for shape, request in firsts.items()}

    def never(self, request: Request) -> Refusal | None:
        """Why neither a host there is nor one that could be made could ever serve the request; None when some could."""
        return self._potential.infeasible(self._situation.fleet, request)

    def _reason(self, request: Request) -> Refusal:
        return self._potential.explain(reason(self._situation, request), self._situation.fleet, request)

    def _not_waiting(self, key: str) -> Refusal:
        if key in self._held:
            return Refusal(code=RefusalCode.HELD, message="its user holds it", remedy="its user lets it go: iris release")
        text = "it has a host" if key in self._live else "the scheduler does not know of it yet, or no longer"
        return Refusal(code=RefusalCode.UNKNOWN, message=text)
