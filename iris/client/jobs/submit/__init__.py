"""Submits jobs: starts their workflows, with what a job refers to resolved before."""
