"""What errors of a bookie's answers say."""

from __future__ import annotations

from geminga_bookie.errors import NoSuchLedger, UnauthorizedAccess
from geminga_bookie.wire.status import error_of
from geminga_protocol.pb.bookkeeper_protocol_pb2 import StatusCode


def test_a_refusal_says_where_to_look() -> None:
    error = error_of(StatusCode.EUA, "bookie b:1: adding entries")
    assert isinstance(error, UnauthorizedAccess)
    assert str(error).startswith("bookie b:1: adding entries: the bookie answered EUA (")
    assert "authentication keys" in str(error)


def test_others_are_named() -> None:
    error = error_of(StatusCode.ENOLEDGER, "bookie b:1: reading")
    assert isinstance(error, NoSuchLedger)
    assert str(error) == "bookie b:1: reading: the bookie answered ENOLEDGER"
