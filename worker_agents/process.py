"""What Iris' long-running processes have in common."""

import asyncio
import gc
import signal


def stop_event() -> asyncio.Event:
    """Set when the process is asked to stop, by SIGTERM, Ctrl-C, or the end of its terminal."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def rest_memory() -> None:
    """Keep the garbage collector from going through all modules and models again and again: a tenth of a control plane's CPU."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
