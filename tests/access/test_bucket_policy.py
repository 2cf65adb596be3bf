"""Which objects of a bucket each person of a cluster may read and write."""

import re

import pytest

from iris.access.bucket_policy import bucket_policy, members_of
from iris.access.policy import Issuer, Mapped, Policy, Role

PEOPLE = {
    "ada": (Role.USER, "user:ada@lab.org"),
    "eve": (Role.VIEWER, "user:eve@lab.org"),
    "op": (Role.OPERATOR, "user:op@lab.org"),
    "control-plane": (Role.CONTROL_PLANE, "serviceAccount:cp@lab.iam.gserviceaccount.com"),
}
READ, WRITTEN, MADE = (f"roles/storage.object{each}" for each in ("Viewer", "User", "Creator"))


def allowed(member: str, path: str, prefix: str = "iris") -> set[str]:
    """The roles that a person has for an object, as IAM would decide: its conditions are a row of
    alternatives.
    """
    name = f"projects/_/buckets/lab/objects/{path}"
    policy = bucket_policy("lab", "lab", prefix, PEOPLE)
    found = set()
    for binding in policy["bindings"]:
        tests = re.findall(
            r'resource\.name\.startsWith\("([^"]+)"\)',
            binding.get("condition", {}).get("expression", ""),
        )
        if member in binding["members"] and (
            "condition" not in binding or name.startswith(tuple(tests))
        ):
            found.add(binding["role"])
    return found


@pytest.mark.parametrize(
    ("path", "roles"),
    [
        ("iris/logs/ada/train/01a2/0/1/0000000001.log", {READ}),
        ("iris/outputs/ada/train/01a2/0/1/model.bin", {READ}),
        ("iris/bundles/abc.tar.gz", {READ, MADE}),
        ("iris/sealed/lab/job/ada/train/x", {WRITTEN}),
        ("iris/pools/lab/pool/ada/pool-1/1-call", {WRITTEN}),
        ("iris/exec/ada/0c1d/in/0000000001", {WRITTEN}),
        ("iris/exec/bob/0c1d/in/0000000001", set()),
        ("iris/clusters/lab/uid", {READ}),
        ("iris/logs/bob/train/01a2/0/1/0000000001.log", set()),
        ("iris/logs/adam/train/01a2/0/1/0000000001.log", set()),
        ("iris/sealed/lab/user/bob/TOKEN", set()),
        ("iris/audit/lab/2026-11-28/21-server-0-0000000000.jsonl", set()),
        ("iris/sealed/other/job/ada/train/x", set()),
        ("logs/ada/train/01a2/0/1/0000000001.log", set()),
    ],
)
def test_a_user_reads_the_own_jobs_files_and_writes_the_own_secrets(
    path: str, roles: set[str]
) -> None:
    """Logs and results of others are theirs alone."""
    assert allowed("user:ada@lab.org", path) == roles


def test_a_viewer_reads_no_files_of_jobs() -> None:
    """Logs can hold anything."""
    assert allowed("user:eve@lab.org", "iris/logs/ada/train/01a2/0/1/0000000001.log") == set()
    assert allowed("user:eve@lab.org", "iris/clusters/lab/accounting.json") == {READ}


@pytest.mark.parametrize("name", ["op", "control-plane"])
def test_operators_and_control_planes_have_the_whole_store_and_no_more(name: str) -> None:
    """The bucket may have other folders."""
    member = PEOPLE[name][1]

    assert allowed(member, "iris/logs/ada/train/01a2/0/1/0000000001.log") == {WRITTEN}
    assert allowed(member, "other/file") == set()
    assert allowed(member, "other/file", prefix="") == {WRITTEN}


def test_no_condition_has_more_operators_than_iam_takes() -> None:
    """IAM refuses a condition with more than twelve logical operators."""
    for binding in bucket_policy("lab", "lab", "iris", PEOPLE)["bindings"]:
        assert binding["condition"]["expression"].count("||") <= 12


def test_members_are_whom_google_knows_and_those_who_are_named() -> None:
    """However the servers recognise them."""
    issuer = Issuer(
        issuer="https://issuer.example",
        jwks_uri="https://issuer.example/keys",
        audience="lab",
        users={"ada@lab.org": Mapped(name="ada", role=Role.USER)},
    )
    cert = {"op.lab.org": Mapped(name="op", role=Role.OPERATOR)}
    policy = Policy(cluster="lab", issuers=(issuer,), certificates=cert)

    assert members_of(policy, [("op", "user:op@lab.org")]) == {
        "ada": (Role.USER, "user:ada@lab.org"),
        "op": (Role.OPERATOR, "user:op@lab.org"),
    }
