"""Defines the control plane's activities: messages to the scheduler, signals to jobs, observation,
platform calls and recovery.

Open `outbox.py` first: jobs and slices exchange messages with the scheduler through it. These
activities must not run programs on hosts, and must call a platform only through
`iris.platforms.base`.
"""
