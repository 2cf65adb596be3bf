"""The metrics that a control plane and an agent serve for Prometheus.

Open `declared.py` first, which has all metrics. Code that knows a fact adds it to a metric there,
at almost no cost while the process serves no metrics. `page.py` serves them over HTTP. Workflow
code must not use this package: a replay would count again.
"""
