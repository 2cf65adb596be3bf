"""The cloud's time: the machine's time, with a speed and jumps."""

import time
from datetime import UTC, datetime
from typing import Any


class Clock:
    """Seconds since 1970, as the cloud tells them. It goes on while the process is dead."""

    def __init__(self, saved: dict[str, Any] | None = None) -> None:
        now = time.time()
        saved = saved or {"real": now, "virtual": now, "speed": 1.0}
        self._real, self._virtual, self.speed = saved["real"], saved["virtual"], saved["speed"]

    def now(self) -> float:
        return float(self._virtual + (time.time() - self._real) * self.speed)

    def advance(self, seconds: float) -> None:
        """So much time passes at once."""
        self._virtual, self._real = self.now() + seconds, time.time()

    def run(self, speed: float) -> None:
        """From now on so many seconds pass in one."""
        self.advance(0)
        self.speed = speed

    def saved(self) -> dict[str, Any]:
        return {"real": self._real, "virtual": self._virtual, "speed": self.speed}


def stamp(at: float) -> str:
    """As Google writes times."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
