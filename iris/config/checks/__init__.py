"""Checks a configuration whose single values are valid: for contradictions, for mistakes that only
the cloud would refuse, and for risks.
"""
