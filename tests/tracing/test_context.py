"""The identities of spans, and the header that carries them."""

import pytest

from iris.tracing.context import TraceContext, decode, header

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("03", True)])
def test_a_traceparent_is_read_and_written(flags: str, sampled: bool) -> None:
    """Programs and pipelines write it, and read what Iris gives them."""
    context = TraceContext.parse(f"00-{TRACE}-{SPAN}-{flags}")
    assert context == (TRACE, SPAN, sampled)
    assert TraceContext.parse(str(context)) == context


@pytest.mark.parametrize(
    "text",
    [
        *("", None, 7, "x", f"00-{TRACE}-{SPAN}", f"01-{TRACE}-{SPAN}-01"),
        *(f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE.upper()}-{SPAN}-01"),
    ],
)
def test_what_is_no_traceparent_is_none(text: object) -> None:
    """Any client can send any header; a workflow that raises over it would be stuck."""
    assert TraceContext.parse(text) is None


def test_spans_are_the_same_wherever_they_are_computed_and_differ_by_name() -> None:
    """The host gives a program a span that the control plane exports later."""
    context = TraceContext(TRACE, SPAN, sampled=False)
    assert context.child("a") == TraceContext(TRACE, SPAN).child("a")._replace(sampled=False)
    others = {context.span_id, *(context.child(name).span_id for name in ("a", "b"))}
    assert len(others) == 3
    assert TraceContext.root("run-1") == TraceContext.root("run-1")
    assert TraceContext.root("run-1").trace_id != TraceContext.root("run-2").trace_id


@pytest.mark.parametrize("data", [b"", b"\xff", b"[1]", b'"x"', b"{", b"[" * 100_000])
def test_a_header_of_another_form_has_no_fields(data: bytes) -> None:
    """A workflow that raises over one would be stuck."""
    assert decode(data) == {}


def test_a_header_is_read_as_it_was_written() -> None:
    """It travels through Temporal unchanged."""
    assert decode(header({"traceparent": "x"}).data) == {"traceparent": "x"}
