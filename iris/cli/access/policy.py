"""Implements `iris cluster access`: makes, checks and updates the policy of a cluster."""

from collections import Counter
from pathlib import Path

import click

from iris.access import bucket_policy as buckets
from iris.access.policy import Policy
from iris.cli.command import Command
from iris.cli.parameters import KEY_VALUE, json_option
from iris.cli.show.messages import print_json
from iris.client.access.policy_file import change_policy, check_policy, create_policy
from iris.model.names import check_name

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(cls=Command)
@click.option("--create", type=_FILE, metavar="FILE", help="Write a policy that names nobody yet.")
@click.option("--check", type=_FILE, metavar="FILE", help="Check a policy. Changes nothing.")
@click.option(
    "--update", type=_FILE, metavar="FILE", help="Give a policy the rules of this version of Iris."
)
@click.option("--name", help="With --create: the name of the cluster.")
@click.option("--namespace", help="With --create: its Temporal namespace.  [default: default]")
@click.option("--audit-dir", help="With --create: directory of the servers for audit files.")
@click.option(
    "--bucket-policy",
    type=_FILE,
    metavar="FILE",
    help="Print the IAM policy of the store's bucket for the people of a policy. Changes nothing.",
)
@click.option("--store", metavar="URL", help="With --bucket-policy: the store, gs://BUCKET/….")
@click.option(
    "--member",
    "members",
    type=KEY_VALUE,
    multiple=True,
    metavar="NAME=MEMBER",
    help="With --bucket-policy: Google's name of somebody: ada=user:ada@example.org. Repeatable.",
)
@json_option
def access(
    create: Path | None,
    check: Path | None,
    update: Path | None,
    name: str | None,
    namespace: str | None,
    audit_dir: str | None,
    bucket_policy: Path | None,
    store: str | None,
    members: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """Make, check or update the policy of a cluster with identities: who may do what.

    Temporal's servers enforce the policy in the file that IRIS_ACCESS_POLICY names for them.
    `iris user` adds and revokes people.

    \b
    iris cluster access --create access.json --name lab
    iris cluster access --check access.json
    iris cluster access --bucket-policy access.json --store gs://lab --member ada=user:ada@lab.org
    """
    if sum(path is not None for path in (create, check, update, bucket_policy)) != 1:
        raise click.UsageError("give one of --create, --check, --update and --bucket-policy")
    if create is None and (name or namespace or audit_dir):
        raise click.UsageError("--name, --namespace and --audit-dir are for --create")
    if (bucket_policy is None) != (store is None) or (bucket_policy is None and members):
        raise click.UsageError(
            "--bucket-policy needs --store, and --store and --member need --bucket-policy"
        )
    if bucket_policy is not None and store is not None:
        policy = check_policy(bucket_policy)
        people = buckets.members_of(policy, members)
        bucket, prefix = buckets.bucket_of(store)
        print_json(buckets.bucket_policy(policy.cluster, bucket, prefix, people))
        return
    if create is not None:
        if name is None:
            raise click.UsageError("--create needs --name")
        policy = Policy(
            cluster=check_name("name", name),
            namespace=namespace or "default",
            audit_dir=audit_dir or "",
        )
        create_policy(create, policy)
    elif update is not None:
        policy = change_policy(update, lambda policy: policy)
    else:
        assert check is not None
        policy = check_policy(check)
    _show(policy, as_json=as_json)


def _show(policy: Policy, *, as_json: bool) -> None:
    roles = Counter(each.role.value for each in policy.entries)
    if as_json:
        facts = policy.model_dump(include={"cluster", "namespace", "audit_dir"})
        print_json({**facts, "roles": dict(sorted(roles.items())), "revoked": len(policy.revoked)})
        return
    counts = ", ".join(f"{count} {role}" for role, count in sorted(roles.items()))
    click.echo(
        f"the policy of cluster {policy.cluster} (namespace {policy.namespace}) is valid:"
        f" {counts or 'it names nobody'}"
    )
