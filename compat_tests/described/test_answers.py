"""Every operation of the description, called with values that schemathesis makes of it: valid ones,
and wrong ones where there are any. The answers are as described, and the broker is none the worse.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.described.calls import LEFT_OUT, Described
from compat_tests.processes import ServerProcess, start_geminga
from geminga_protocol._tests.rounds import IS_NIGHTLY

pytestmark = pytest.mark.slow

EXAMPLES = 25 if IS_NIGHTLY else 2
"""Of each operation, of each kind of values."""
FAMILIES = {
    "persistent": ("/admin/v2/persistent/",),
    "non-persistent": ("/admin/v2/non-persistent/",),
    "namespaces": ("/admin/v2/namespaces/",),
    "others": ("/",),
}
SUCCEED = {"persistent": 110, "non-persistent": 70, "namespaces": 90, "others": 45}
"""How many operations of a family did something: calls that are all refused would show little."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of its own: nothing that is there stays as it is."""
    # Thousands of partitions, as a value may ask for, would only take time.
    settings = {"maxNumPartitionsPerPartitionedTopic": "20"}
    running = start_geminga(tmp_path_factory.mktemp("described") / "data", settings=settings)
    yield running
    code = running.stop()
    log = running.log_path.read_text()
    assert code == 0, running.log_tail()
    assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:4000]


@pytest.mark.timeout(1800 if IS_NIGHTLY else 600)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_answers_are_as_described(server: ServerProcess, family: str) -> None:
    described = Described(server.web_url)
    described.prepare()
    assert described.healthy()
    before = [each for known in FAMILIES.values() if known != ("/",) for each in known]
    operations = [
        each
        for each in described.operations(*FAMILIES[family])
        if family != "others" or not each.path.startswith(tuple(before))
    ]
    assert operations
    wrong = [each for operation in operations for each in described.check(operation, EXAMPLES)]
    assert wrong == []
    assert described.healthy()
    assert len(described.succeeded) >= SUCCEED[family], sorted(
        {each.label for each in operations} - described.succeeded
    )


def test_each_operation_is_of_a_family(server: ServerProcess) -> None:
    described = Described(server.web_url)
    assert described.document["paths"].keys() >= LEFT_OUT
    labels = {each.label for each in described.operations("/")}
    assert len(labels) == sum(map(len, described.document["paths"].values())) - len(LEFT_OUT)
