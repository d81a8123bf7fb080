"""The numbers of sequential nodes, without a server: no test makes two billion of them."""

# kazoo is of an extra.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Sequence

import pytest
from kazoo.protocol.serialization import Create2, Delete, Transaction

from geminga_runtime.metadata.api import MUST_NOT_EXIST, MetadataError, Write
from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore

AT = "/ledgers/idgen/ID-"
STAT = (0,) * 11


class _Server:
    """Gives out one number, whatever it is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: str) -> None:
        self.sent: list[object] = []
        self._number = number
        link = "geminga_runtime.metadata.zookeeper_session.Link"
        monkeypatch.setattr(link, lambda *_arguments: None)
        self.store = ZooKeeperMetadataStore("zk:nowhere:2181/c", 10.0, 1 << 20)
        monkeypatch.setattr(self.store._calls, "change", self._change)
        monkeypatch.setattr(self.store._calls, "send", lambda content, _: self.sent.append(content))
        monkeypatch.setattr(self.store._tracker, "_deadline", lambda: 1e9)

    async def _change(self, content: object, _size: int, _epoch: int | None = None) -> object:
        self.sent.append(content)
        if isinstance(content, Create2):
            return content.path + self._number, STAT
        assert isinstance(content, Transaction)
        return [None for _ in content.operations]


def writes(number: int) -> Sequence[Write]:
    return [Write(f"/ledgers/{number}", b"", MUST_NOT_EXIST)]


async def test_the_last_number(monkeypatch: pytest.MonkeyPatch) -> None:
    server = _Server(monkeypatch, "2147483647")
    assert await server.store.put_numbered(AT, writes) == (2147483647, [0])


@pytest.mark.parametrize("number", ["-2147483648", "-2147483647", "-000000001"])
async def test_none_is_given_out_again(monkeypatch: pytest.MonkeyPatch, number: str) -> None:
    server = _Server(monkeypatch, number)
    with pytest.raises(MetadataError, match="no numbers"):
        await server.store.put_numbered(AT, writes)
    with pytest.raises(MetadataError, match="no numbers"):
        await server.store.put(AT, b"", MUST_NOT_EXIST, sequential=True)
    assert [type(each) for each in server.sent] == [Create2, Delete] * 2
    assert server.sent[1] == Delete(f"/c{AT}{number}", -1)
