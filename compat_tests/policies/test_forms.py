"""Each policy of the table, set, told, resolved over the levels and removed (spec BR-60). The same
calls are made to Apache's broker by `compat_tests/clients/test_policy_forms.py`.
"""

from __future__ import annotations

import json
import re

import pytest

from compat_tests.apache.admin_paths import LIST
from compat_tests.clients.policy_calls import ANY, EMPTY
from compat_tests.policies.forms import BEGIN, calls_of
from compat_tests.policies.model import Policy
from compat_tests.policies.table import ACTIONS, POLICIES
from geminga_broker._tests.wire import open_broker
from geminga_broker.admin._tests.test_guard import call
from geminga_broker.admin.app import create_app

SPACE = "/admin/v2/namespaces/{tenant}/{namespace}/"
TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}/"
WITH_FORMS = [
    each
    for each in POLICIES
    if any(level is not None and level.has_form for level in (each.namespace, each.topic))
    if each.name != "entryFilters"  # of which none is installed
]


@pytest.mark.parametrize("policy", WITH_FORMS, ids=lambda policy: policy.name)
async def test_a_policy_is_told_as_it_is_set(policy: Policy) -> None:
    wrong = []
    async with open_broker() as broker:
        app = create_app(broker.service)
        for method, path, body, status, expected in (*BEGIN, *calls_of(policy)):
            path, _, query = path.replace("{t}", "t").partition("?")
            given = None if body is None else json.loads(body)
            answer = await call(app, method, path, None, body=given, query=query)
            told = json.loads(answer.body) if answer.body else EMPTY
            if answer.status != status or (expected is not ANY and told != expected):
                wrong.append(f"{method} {path}?{query} {body}: {answer}, not {status} {expected}")
    assert not wrong, "\n".join(wrong)


def test_every_path_of_apache_is_in_the_table() -> None:
    """Of namespaces and of topics; or it is no policy's."""
    lines = [line.split(" ") for line in LIST.read_text().splitlines()]
    for base, levels in (
        (SPACE, [each.namespace for each in POLICIES]),
        (TOPIC, [each.topic for each in POLICIES]),
    ):
        ours = {each.path for each in levels if each is not None}
        theirs = {
            path.replace("{property}", "{tenant}").removeprefix(base)
            for path, _ in lines
            if path.replace("{property}", "{tenant}").startswith(base)
        }
        shapes = {re.sub(r"\{[^}]*\}", "{}", each) for each in theirs}
        single = {each for each in shapes if not each.startswith(("{}", "subscription/", "all_"))}
        assert single - ours - ACTIONS == set()
        assert {each for each in ours if "s1/" not in each} <= shapes
