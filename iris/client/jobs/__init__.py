"""The client's operations on jobs: submission, status, results, files."""
