"""The life of each policy over namespace and topic, answered alike by our server and Apache's
(spec BR-60).
"""

from __future__ import annotations

from compat_tests.clients.test_rest import all_wrong
from compat_tests.policies.forms import BEGIN, END, calls_of
from compat_tests.policies.test_forms import WITH_FORMS
from compat_tests.processes import ServerProcess

OURS_ONLY = (
    "backlogQuotaMap?applied=true",
    "subscriptionTypesEnabled?applied=true",
    "dispatcherPauseOnAckStatePersistent?applied=true",
)
"""Apache's broker does not tell a namespace's types and pause with `applied`, and takes the
broker's quotas into its copy of the namespace's policies when it tells those.
"""


def test_every_policy_is_told_as_apache_tells_it(server: ServerProcess) -> None:
    calls = [each for policy in WITH_FORMS for each in calls_of(policy)]
    common = [each for each in calls if not each[1].endswith(OURS_ONLY)]
    assert all_wrong(server.web_url, [*BEGIN, *common, *END]) == []
