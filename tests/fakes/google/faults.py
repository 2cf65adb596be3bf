"""The failures before and after a call, by the rules that tests set."""

import asyncio
import fnmatch
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from tests.fakes.google.cloud import Cloud
from tests.fakes.google.records import Rule
from tests.fakes.google.refusals import Refusal, status_name

T = TypeVar("T")


class Dropped(Exception):
    """It was done, and the connection is cut before anybody hears of it."""


class Gate:
    """The way in to both APIs."""

    def __init__(self, cloud: Cloud, settle: Callable[[], None]) -> None:
        self._cloud, self._settle = cloud, settle
        self._calls: dict[str, deque[float]] = {}

    async def call(self, method: str, subject: str, does: Callable[[], T]) -> T:
        """Make the call: it is written into the audit, meets what the rules say, and is carried out
        at one go.

        Raises:
            Refusal: by a rule, or by the call itself.
            Dropped: see there.
        """
        dropped = False
        for rule in self._met(method, subject):
            match rule.does:
                case "latency":
                    await asyncio.sleep(rule.seconds)
                case "hang":
                    await asyncio.sleep(1e6)
                case "drop":
                    dropped = True
                case "rate":
                    self._limit(rule, method, subject)
                case _:
                    self._refuse(rule, method, subject)
        try:
            self._settle()
            answer = does()
        except Refusal as refusal:
            self._log(method, subject, refusal.status)
            raise
        self._log(method, subject, "dropped" if dropped else "OK")
        if dropped:
            raise Dropped
        return answer

    def _log(self, method: str, subject: str, status: str) -> None:
        self._cloud.log("call", method=method, path=subject, status=status)
        self._cloud.flush()

    def _met(self, method: str, subject: str) -> list[Rule]:
        met = []
        for rule in self._cloud.knobs.rules:
            if (
                fnmatch.fnmatchcase(method, rule.method)
                and rule.match in subject
                and rule.times != 0
            ):
                if rule.times is not None:
                    rule.times -= 1
                    self._cloud.turned()
                met.append(rule)
                if rule.does == "fail":
                    break  # the next failure is for the next call
        return met

    def _limit(self, rule: Rule, method: str, subject: str) -> None:
        calls, now = (
            self._calls.setdefault(f"{rule.method} {rule.match}", deque()),
            self._cloud.clock.now(),
        )
        while calls and calls[0] <= now - 60:
            calls.popleft()
        if len(calls) >= rule.limit:
            self._refuse(rule, method, subject)
        calls.append(now)

    def _refuse(self, rule: Rule, method: str, subject: str) -> None:
        compute = "." in method
        details = rule.details
        if compute:  # its errors have reasons instead
            details = {"rate": "rateLimitExceeded", "quota": "quotaExceeded"}.get(details, details)
        http = int(rule.status) if rule.status.isdecimal() else 0
        message = rule.message or f"{method} fails because a test wants it to"
        refusal = Refusal(status_name(rule.status), message, details, http, rule.retry_after)
        self._log(method, subject, refusal.status)
        raise refusal
