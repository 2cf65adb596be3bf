"""Workflows of jobs, gangs, tasks and schedules."""
