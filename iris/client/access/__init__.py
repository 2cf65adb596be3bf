"""Who a connection speaks for.

Identities: the key of this machine's user, the tokens that connections send, and the policy file of
a cluster. Without an identity, no connection imports anything of it. The message key: the proofs
that clients add on a cluster without identities, and the checks of its workers.
"""
