"""Schedules: Temporal schedules that start a job again and again."""
