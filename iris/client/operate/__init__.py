"""Starts, stops, inspects and repairs clusters.
Open `controllers.py` first; `control.py` has the interface that every control plane implements.
Must not print or prompt: callers pass a function that receives progress messages."""
