"""Racks and bookie affinity over REST; `compat_tests/clients/test_bookies_admin.py` compares the
answers with Apache's.
"""

from __future__ import annotations

import pytest

from geminga_broker._tests.wire import open_broker
from geminga_broker.admin._tests.test_guard import call
from geminga_broker.admin.app import create_app
from geminga_broker.admin.bookies import BAD_RACK, _is_rack
from geminga_broker.bookies_config import BookiesConfig
from geminga_broker.cluster.bookie_affinity import BookieAffinity
from geminga_broker.log.options import LedgerDurability

AFFINITY = "/admin/v2/namespaces/public/default/persistence/bookieAffinity"
RACKS = "/admin/v2/bookies/racks-info"


@pytest.mark.parametrize(
    ("by_rack", "by_region", "good", "bad"),
    [
        (True, False, ["", "/", "r", "/r/"], ["/a/b", "a//b"]),
        (True, True, ["/a/b", "a/b/"], ["", "/r", "/a/b/c"]),
        (False, True, ["", "/a/b/c"], []),
    ],
)
def test_racks_are_within_regions_if_there_are_any(
    by_rack: bool, by_region: bool, good: list[str], bad: list[str]
) -> None:
    config = BookiesConfig(by_rack=by_rack, by_region=by_region)
    assert [rack for rack in [*good, *bad] if _is_rack(rack, config)] == good


async def test_what_is_set_is_what_new_ledgers_say() -> None:
    async with open_broker() as broker:
        app = create_app(broker.service)
        describe = BookieAffinity(broker.service.store).of_ledger
        owner = LedgerDurability().ledger_options("public/default/persistent/t", "x")
        assert await describe(owner.custom_metadata) == {}
        groups = {"bookkeeperAffinityGroupPrimary": "red"}
        assert (await call(app, "POST", AFFINITY, None, body=groups)).status == 204
        (policy,) = (await describe(owner.custom_metadata)).values()
        assert b'"isolationBookieGroups": "red"' in policy
        assert (await call(app, "DELETE", AFFINITY, None)).status == 204
        assert await describe(owner.custom_metadata) == {}


async def test_names_are_bounded() -> None:
    async with open_broker() as broker:
        app = create_app(broker.service)
        long = "x" * 3000
        rack = {"rack": "r"}
        for path, query, body in (
            (f"{RACKS}/{long}", "group=g", rack),
            (f"{RACKS}/b", f"group={long}", rack),
            (f"{RACKS}/b", "group=g", {"rack": long}),
            (f"{RACKS}/b", "group=g", {"hostname": long}),
            (AFFINITY, "", {"bookkeeperAffinityGroupPrimary": long}),
            (AFFINITY, "", {"bookkeeperAffinityGroupSecondary": long}),
        ):
            answer = await call(app, "POST", path, None, body=body, query=query)
            assert (answer.status, answer.reason[-22:]) == (412, "longer than 2048 bytes"), path
        answer = await call(app, "POST", f"{RACKS}/b", None, body={"rack": "a/b"}, query="group=g")
        assert (answer.status, answer.reason) == (412, BAD_RACK)
        assert (await call(app, "GET", RACKS, None)).body == b"{}"
