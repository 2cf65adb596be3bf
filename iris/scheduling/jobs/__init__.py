"""The decisions of the workflows of jobs: the lifecycle of a gang, retries, cancellations."""
