"""Files of an attempt: workspace, caches, checkpoints, logs, outputs."""
