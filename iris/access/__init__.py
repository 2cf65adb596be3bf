"""Who may do what on a cluster with identities: keys, tokens, and the policy that Temporal's
servers enforce. Pure: the clock and all random bytes are arguments.
"""
