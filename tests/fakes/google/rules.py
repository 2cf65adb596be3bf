"""The validation that both APIs share. It is stricter than theirs."""

import re
from collections.abc import Iterable, Mapping

from tests.fakes.google import catalog
from tests.fakes.google.records import Knobs
from tests.fakes.google.refusals import Refusal, invalid

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_METADATA_KEY = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_PROJECT = re.compile(r"[a-z][-a-z0-9]{4,28}[a-z0-9]")
_TAG = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
KIB = 1024


def check_place(knobs: Knobs, project: str, zone: str) -> None:
    """Raises:
    Refusal: there is no such zone for the project, or it does not answer.
    """
    if not _PROJECT.fullmatch(project):
        raise invalid(f"Invalid project id '{project}'")
    if zone not in catalog.ZONES and zone not in knobs.zones:
        raise Refusal(
            "PERMISSION_DENIED", f"Location {zone} is not found or access is unauthorized."
        )
    if zone in knobs.zones_down:
        raise Refusal("UNAVAILABLE", "The service is currently unavailable.")


def check_name(name: str, field: str) -> None:
    if not _NAME.fullmatch(name):
        raise invalid(
            f"Invalid value for field '{field}': '{name}'. Must be a match of regex"
            f" '{_NAME.pattern}'"
        )


def check_labels(labels: Mapping[str, str]) -> None:
    if len(labels) > 64:
        raise invalid(f"Invalid value for field 'labels': {len(labels)} labels; the maximum is 64")
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key):
            raise invalid(
                f"Invalid label key '{key}': must be a match of regex '{_LABEL_KEY.pattern}'"
            )
        if not _LABEL_VALUE.fullmatch(value):
            raise invalid(
                f"Invalid label value '{value}' of '{key}': must be a match of regex"
                f" '{_LABEL_VALUE.pattern}'"
            )


def check_metadata(items: Iterable[tuple[str, str]]) -> None:
    total, seen = 0, set()
    for key, value in items:
        if not _METADATA_KEY.fullmatch(key):
            raise invalid(
                f"Invalid metadata key '{key}': must be a match of regex '{_METADATA_KEY.pattern}'"
            )
        if key in seen:
            raise invalid(f"Invalid value for field 'metadata': the key '{key}' is there twice")
        seen.add(key)
        size = len(value.encode())
        if size > 256 * KIB:
            raise invalid(
                f"Value for field 'metadata.{key}' is too large: maximum size 262144 bytes; actual"
                f" size {size} bytes."
            )
        total += len(key) + size
    if total > 512 * KIB:
        raise invalid(
            "Value for field 'metadata' is too large: maximum size 524288 bytes; actual size"
            f" {total} bytes."
        )


def check_tags(tags: Iterable[str]) -> None:
    for tag in tags:
        if not _TAG.fullmatch(tag):
            raise invalid(f"Invalid value for field 'tags': '{tag}'")


def check_offered(knobs: Knobs, zone: str, kind: str) -> None:
    if zone in knobs.offers and kind not in knobs.offers[zone]:
        raise invalid(f"Type '{kind}' is not available in zone '{zone}'")
