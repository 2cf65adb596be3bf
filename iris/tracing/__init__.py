"""Traces of jobs, from their submission to the exit of their programs, for OpenTelemetry.

`context.py` has the identities of spans, which are computed, so that every process knows them.
`spans.py` exports finished spans. Only it imports OpenTelemetry, and only if tracing is on.
"""
