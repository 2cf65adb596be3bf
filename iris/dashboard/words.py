"""The scheduler's codes in a few words."""

from iris.scheduling.placement.refusals import RefusalCode

#: For each code of a reason why a gang waits, a description in a few words.
WORDS = {
    RefusalCode.NO_HOSTS: "the cluster has no host",
    RefusalCode.NO_DEVICE: "no host of this kind",
    RefusalCode.TOO_BIG: "larger than any host",
    RefusalCode.CONSTRAINTS: "no host meets the constraints",
    RefusalCode.NO_GROUP: "no slice is large enough",
    RefusalCode.SCALING: "waits for a new slice",
    RefusalCode.CLOSED: "the suitable hosts are closed",
    RefusalCode.PAUSED: "the cluster is paused",
    RefusalCode.HELD: "its job is held",
    RefusalCode.EVICTING: "lower-priority work makes room",
    RefusalCode.BUSY: "the suitable hosts are in use",
    RefusalCode.KEPT: "free hosts are kept for gangs ahead",
    RefusalCode.QUEUED: "starts in the next pass",
    RefusalCode.QUOTA: "a quota is used up",
    RefusalCode.WAITING_QUOTA: "too many jobs of its user or team wait",
    RefusalCode.LEDGER_FULL: "the scheduler has no space",
    RefusalCode.UNKNOWN: "unknown to the scheduler",
}


def words_of(code: str) -> str:
    """Returns a reason's code in a few words."""
    return WORDS[RefusalCode(code)] if code in list(RefusalCode) else "not computed"
