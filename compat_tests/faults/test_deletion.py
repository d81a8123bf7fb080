"""kill -9 while a topic or namespace is deleted: after the next start it is whole, or gone."""

from __future__ import annotations

import http.client
import json
import random
import sqlite3
import threading
import urllib.error
import urllib.request
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from compat_tests.faults.conftest import SETTINGS, TOPIC, Starter
from compat_tests.processes import ServerProcess, wait_until
from compat_tests.wire.raw import RawClient, read_all
from geminga_broker.log.position_info import NO_LEDGER
from geminga_protocol._tests.rounds import rounds
from geminga_protocol.managed_ledger import decode_cursor_info

KILLS = rounds(16)
MESSAGES = 40
PATH = "/admin/v2/persistent/public/default"
NAMESPACE = "/admin/v2/namespaces/public/gone"
PARTITIONS = 3
SMALL_LEDGERS = {
    **SETTINGS,
    "managedLedgerMaxEntriesPerLedger": "7",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "brokerDeleteInactiveTopicsEnabled": "false",
}


@pytest.mark.slow
def test_a_deletion_that_is_killed_is_finished_or_had_not_begun(start: Starter) -> None:
    chance = random.Random(11)
    server = start(settings=SMALL_LEDGERS)
    positions = _fill(server)
    outcomes = {True: 0, False: 0}
    target = f"{PATH}/faults?force=true"
    longest_s = 0.06
    for _ in range(KILLS):
        deleting = threading.Thread(target=_delete, args=(server.web_url + target,))
        deleting.start()
        deleting.join(chance.random() * longest_s)  # until then, or until it has ended
        server.kill()
        deleting.join()
        server = start(settings=SMALL_LEDGERS)
        exists = TOPIC in _get(server, PATH)
        outcomes[exists] += 1
        # On a busy machine a deletion begins late.
        longest_s = 2 * longest_s if exists else 0.06
        if exists:
            assert _get(server, f"{PATH}/faults/subscriptions") == ["s0", "s1"]
            assert [position for position, _ in read_all(server.address, TOPIC)] == positions
        else:
            assert _nodes(server, "/managed-ledgers/public/default/persistent%") == []
            assert _nodes(server, "/ledgers%", "L%") == []
            assert _nodes(server, "/geminga/log-deletions%") == []
            positions = _fill(server)
    assert outcomes[False], "no deletion had begun"


@pytest.mark.slow
def test_a_deletion_of_a_namespace_that_is_killed_is_finished_or_had_not_begun(
    start: Starter,
) -> None:
    chance = random.Random(12)
    settings = {**SMALL_LEDGERS, "forceDeleteNamespaceAllowed": "true"}
    server = start(settings=settings)
    _make_namespace(server)
    outcomes = {True: 0, False: 0}
    longest_s = 0.1
    for _ in range(KILLS):
        target = f"{server.web_url}{NAMESPACE}?force=true"
        deleting = threading.Thread(target=_delete, args=(target,))
        deleting.start()
        deleting.join(chance.random() * longest_s)  # until then, or until it has ended
        server.kill()
        deleting.join()
        server = start(settings=settings)
        is_done = partial(_has_no_notes, server)
        wait_until(is_done, server.process, server.log_path, timeout_s=60)
        exists = "public/gone" in _get(server, "/admin/v2/namespaces/public")
        outcomes[exists] += 1
        longest_s = 2 * longest_s if exists else 0.1
        if exists:
            assert len(_get(server, f"{NAMESPACE}/topics")) == PARTITIONS + 1
        else:
            left = _nodes(server, "%/public/gone%")
            assert [path for path in left if not path.endswith("persistent")] == []
            _make_namespace(server)
    assert outcomes[False], "no deletion had begun"


def _make_namespace(server: ServerProcess) -> None:
    """Make the namespace, which must be empty then, and topics in it."""
    assert _ask(server, "PUT", NAMESPACE) == 204
    assert _get(server, f"{NAMESPACE}/topics") == []
    base = "/admin/v2/persistent/public/gone"
    assert _ask(server, "PUT", f"{base}/parted/partitions", PARTITIONS) == 204
    assert _ask(server, "PUT", f"{base}/single") == 204
    assert _ask(server, "POST", f"{base}/single/maxProducers", 3) == 204


def _has_no_notes(server: ServerProcess) -> bool:
    return _nodes(server, "/geminga/deletions") == []


def _ask(server: ServerProcess, method: str, path: str, body: object = None) -> int:
    content = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(
        server.web_url + path, method=method, data=content, headers=headers
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        status: int = answer.status
        return status


def _fill(server: ServerProcess) -> list[tuple[int, int]]:
    """Make the topic with two subscriptions, whose states are written: a kill while a cursor's
    ledger is made leaves one that nobody uses.
    """
    with RawClient(server.address) as client:
        client.producer(TOPIC)
        for number in range(2):
            client.subscribe(TOPIC, f"s{number}", consumer_id=number)
        positions = [client.publish(number, b"%d" % number) for number in range(MESSAGES)]
        client.flow(MESSAGES)
        for _ in range(MESSAGES // 2):
            client.ack(*client.next_message()[0])
        written = partial(_has_cursor_ledger, server)
        wait_until(written, server.process, server.log_path, timeout_s=60)
        return positions


def _has_cursor_ledger(server: ServerProcess) -> bool:
    """Of the subscription that acknowledged; later states go to the same ledger."""
    path = "/managed-ledgers/public/default/persistent/faults"
    [(value,)] = _rows(server, "SELECT value FROM nodes WHERE parent = ? AND name = 's1'", path)
    return decode_cursor_info(value).cursorsLedgerId != NO_LEDGER


def _delete(url: str) -> None:
    request = urllib.request.Request(url, method="DELETE")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 204
    except (urllib.error.URLError, ConnectionError, http.client.HTTPException):
        pass  # the server was killed


def _get(server: ServerProcess, path: str) -> list[str]:
    with urllib.request.urlopen(server.web_url + path, timeout=60) as answer:
        found: list[str] = json.load(answer)
        return sorted(found)


def _nodes(server: ServerProcess, parent: str, name: str = "%") -> list[str]:
    """Paths of the metadata store, by SQL's patterns."""
    query = "SELECT parent || '/' || name FROM nodes WHERE parent LIKE ? AND name LIKE ?"
    return [str(row[0]) for row in _rows(server, query, parent, name)]


def _rows(server: ServerProcess, query: str, *values: str) -> list[Any]:
    path = server.data_dir / "metadata.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
        return store.execute(query, values).fetchall()
