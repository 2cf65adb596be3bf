"""Traces of jobs, from their submission to the exit of their programs, for OpenTelemetry.

`context.py` has the identities of spans, which are computed, so that every process knows them.
`spans.py` starts the export of finished spans if tracing is on. Only `exporter.py` imports
OpenTelemetry.
"""
