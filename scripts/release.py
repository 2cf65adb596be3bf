#!/usr/bin/env python
"""The checklist of a release. It publishes nothing.

    scripts/release.py --check-only
        checks the version, the changelog, the metadata and the work tree; builds nothing
    scripts/release.py
        also builds the wheel and its SBOM (CycloneDX) in dist/
    scripts/release.py --push REGISTRY
        also builds and pushes the images

Prints each item with `ok` or with what is to be done, and exits with 1 until all are done.
`dist/release.json` then has the names and checksums of the files, and the digests of the images.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
#: The tool that lists what the wheel brings with it, and its pinned version.
SBOM_TOOL = "cyclonedx-bom==7.1.0"
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


def version_problems(version: str, tags: set[str]) -> Iterator[str]:
    """Says what is wrong with the version of `pyproject.toml`."""
    if re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version) is None:
        yield f"write the version as MAJOR.MINOR.PATCH, not {version!r}"
    if f"v{version}" in tags:
        yield (
            f"version {version} is released already (tag v{version}); choose the next one in"
            " pyproject.toml"
        )


def changelog_problems(changelog: str, version: str) -> Iterator[str]:
    """Says what is wrong with the changelog for a release of this version."""
    parts = _HEADING.split(changelog)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    if sections.get("Unreleased", "").strip():
        yield (
            f"move the entries of Unreleased to '## {version} - YYYY-MM-DD', and leave an empty"
            " Unreleased above it"
        )
    ours = next(
        (
            title
            for title in sections
            if re.fullmatch(rf"\[?{re.escape(version)}\]? - \d{{4}}-\d\d-\d\d", title)
        ),
        None,
    )
    if ours is None:
        yield f"CHANGELOG.md has no section '## {version} - YYYY-MM-DD'"
    elif not sections[ours].strip():
        yield f"the section of {version} in CHANGELOG.md is empty"


def metadata_problems(project: dict[str, Any]) -> Iterator[str]:
    """Says what a package index would not show."""
    urls = project.get("urls", {})
    for name in ("Homepage", "Documentation", "Changelog", "Issues"):
        if name not in urls:
            yield (
                f"[project.urls] in pyproject.toml has no {name}; add the address at which this"
                " repository is published"
            )


def tree_problems(status: str) -> Iterator[str]:
    """Says what is not committed."""
    if status.strip():
        yield f"commit or remove: {', '.join(line[3:] for line in status.splitlines()[:5])}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="scripts/release.py", description="The checklist of a release. It publishes nothing."
    )
    parser.add_argument("--check-only", action="store_true", help="build nothing")
    parser.add_argument(
        "--push", metavar="REGISTRY", help="build the images and push them to this registry"
    )
    options = parser.parse_args()
    if options.check_only and options.push:
        parser.error("--check-only and --push exclude each other")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version: str = project["version"]
    record: dict[str, Any] = {
        "version": version,
        "commit": _run("git", "rev-parse", "HEAD").strip(),
    }
    done = [
        _item("version", version_problems(version, set(_run("git", "tag").split()))),
        _item("changelog", changelog_problems((ROOT / "CHANGELOG.md").read_text(), version)),
        _item("metadata", metadata_problems(project)),
        _item("work tree", tree_problems(_run("git", "status", "--porcelain"))),
    ]
    if not options.check_only:
        done += [
            _item("wheel", _attempt(lambda: record.update(files=_build()))),
            _item("SBOM", _attempt(lambda: record.update(sbom=_sbom(project)))),
            _item("images", _images(record, version, options.push)),
        ]
    if not all(done):
        sys.exit(1)
    if not options.check_only:
        (DIST / "release.json").write_text(json.dumps(record, indent=2) + "\n")
        print(
            f"all is done; to release it, run:\n  git tag -a v{version} && git push origin"
            f" v{version}"
        )
        print("  uv publish dist/*.whl dist/*.tar.gz")


def _item(name: str, problems: Iterator[str]) -> bool:
    """Prints an item of the checklist, and returns whether it is done."""
    found = list(problems)
    print(f"{name:<10} {'ok' if not found else found[0]}")
    for problem in found[1:]:
        print(f"{'':<10} {problem}")
    return not found


def _attempt(step: Callable[[], None]) -> Iterator[str]:
    try:
        step()
    except subprocess.CalledProcessError as error:
        yield f"{' '.join(map(str, error.cmd[:2]))} failed:\n{error.stderr or error.stdout}"


def _build() -> dict[str, str]:
    """Builds the sdist and the wheel, checks the wheel, and returns their checksums."""
    for old in DIST.glob("iris_temporal-*"):
        old.unlink()
    _run("make", "env")
    _run("scripts/build", str(DIST))
    return {
        path.name: _sha256(path)
        for path in sorted(DIST.glob("iris_temporal-*"))
        if path.suffix != ".json"
    }


def with_all_extras(project: dict[str, Any], wheel: str) -> str:
    """Returns the requirement of a wheel with every extra of `pyproject.toml`."""
    return f"{project['name']}[{','.join(sorted(project['optional-dependencies']))}] @ {wheel}"


def _sbom(project: dict[str, Any]) -> dict[str, str]:
    """Lists every package that the wheel with all extras needs, in the versions of the lock."""
    out = DIST / f"iris_temporal-{project['version']}.cdx.json"
    (wheel,) = DIST.glob("*.whl")
    with tempfile.TemporaryDirectory() as work:
        constraints = Path(work) / "constraints"
        lines = (ROOT / "requirements.lock").read_text().splitlines()
        constraints.write_text(
            "\n".join(line.removesuffix("\\").rstrip() for line in lines if "--hash" not in line)
        )
        python = f"{work}/venv/bin/python"
        _run("uv", "venv", "--quiet", "--python", ".venv/bin/python", f"{work}/venv")
        _run(
            "uv",
            "pip",
            "install",
            "--quiet",
            "--python",
            python,
            "--constraint",
            str(constraints),
            with_all_extras(project, wheel.as_uri()),
        )
        tool = ("uv", "tool", "run", "--from", SBOM_TOOL, "cyclonedx-py")
        _run(*tool, "environment", "--output-reproducible", "--output-file", str(out), python)
    out.write_text(out.read_text().replace(wheel.as_uri(), wheel.name))
    return {out.name: _sha256(out)}


def _images(record: dict[str, Any], version: str, registry: str | None) -> Iterator[str]:
    """Builds and pushes the images, and records their digests: a tag may name something else
    tomorrow.
    """
    if registry is None:
        yield "run it again with --push REGISTRY"
        return
    try:
        said = _run("scripts/build-images", "--push", registry, "--tag", version)
    except subprocess.CalledProcessError as error:
        yield f"scripts/build-images failed:\n{error.stderr or error.stdout}"
        return
    record["images"] = [line for line in said.splitlines() if "@sha256:" in line]
    if len(record["images"]) != 2:
        yield f"the registry gave {len(record['images'])} digests for 2 images:\n{said}"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _run(*command: str) -> str:
    # Of uv, which `make env` installs.
    env = {
        **os.environ,
        "PATH": f"{ROOT}/.tools/bin:{os.environ['PATH']}",
    }
    return subprocess.run(
        command, cwd=ROOT, env=env, check=True, capture_output=True, text=True
    ).stdout


if __name__ == "__main__":
    main()
