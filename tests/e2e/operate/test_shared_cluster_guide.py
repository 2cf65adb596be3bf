"""`docs/how-to/shared-cluster.md` is typed in as it stands, after the set-up of `docs/production.md`
in the same shell: each `bash` block, to the last one.
"""

import re

import pytest

from tests.e2e.operate.test_production_guide import ROOT, Shell, blocks, shell

pytestmark = pytest.mark.production
__all__ = ["shell"]

PAGE = (ROOT / "docs/how-to/shared-cluster.md").read_text()


def test_the_page_makes_a_lab_of_three_users(shell: Shell) -> None:
    """Each block succeeds, and with `!` each refusal is one. Nobody else on the machine can read a
    key.
    """
    for block in blocks("Set up", "Backups"):
        shell.type(block)
    printed = [shell.type(block) for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)]

    policy, keys, servers, users, work, audit, revoked = printed
    assert "it names nobody" in policy
    assert "host/first is host" in keys
    assert "identities; you are control-plane (control-plane)" in servers
    assert "eve (viewer) on cluster production" in users
    refusals = [line for line in work.splitlines() if line.startswith("error: ")]
    assert [
        text in line
        for text, line in zip(
            ("bob (user)", "bob (user)", "eve (viewer)", "IRIS_USER"), refusals, strict=True
        )
    ] == [True] * 4
    done = [line.split()[2:6] for line in audit.splitlines() if "job/ada/train" in line]
    assert ["bob", "user", "cancel", "job/ada/train"] in done
    assert ["ada", "user", "cancel", "job/ada/train"] in done
    assert "is valid: 1 control-plane, 1 host, 1 operator, 1 user, 1 viewer" in revoked
    directory = shell.home / "production"
    private = [*directory.glob("*.json"), *directory.glob("home-*/identity.json")]
    open_ = [path.name for path in private if path.stat().st_mode & 0o077]
    assert open_ == ["access.json"]  # it has no secrets
