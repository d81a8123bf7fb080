"""What commands ask for, by their command lines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from geminga.cli.admin._tests.asking import Asked, answered, refusal

NS = "/admin/v2/namespaces/a/b"
T = "/admin/v2/persistent/a/b/t"
S = f"{T}/subscription/s"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


LINES = (Path(__file__).parent / "requests.txt").read_text().splitlines()
REQUESTS = list(zip(LINES[::2], map(str.strip, LINES[1::2]), strict=True))
"""Command lines, each followed by the request that it makes."""


@pytest.mark.parametrize(("line", "request_"), REQUESTS, ids=[line for line, _ in REQUESTS])
def test_a_command_s_request(asked: Asked, line: str, request_: str) -> None:
    result = asked.run(*line.split())
    assert result.exit_code == 0, result.output
    assert asked.requests == [request_]


@pytest.mark.parametrize(
    "line",
    [
        "topics create-partitioned-topic a/b/t",
        "topics create-partitioned-topic a/b/t -p x",
        "topics stats",
        "topics stats a/b",
        "topics stats a/b/c/d",
        "topics lst a/b",
        "topics list a/b --tpic-domain persistent",
        "topics list a",
        "namespaces set-retention a/b -t 3x -s 1",
        "namespaces set-retention a/b -t 3h -s 1Q",
        "namespaces set-retention a/b -t 30 -s 100M",
        "namespaces set-retention a/b -t -5 -s 100M",
        "topics set-retention a/b/t -t 30m -s 100",
        "namespaces set-deduplication a/b",
        "namespaces set-deduplication a/b -e -d",
        "namespaces set-persistence a/b -e 1 -w 2",
        "namespaces set-persistence a/b -r -1",
        "topics set-persistence t -r nan",
        "namespaces split-bundle a/b",
        "namespaces unload a/b -d h:8080",
        "namespaces set-auto-topic-creation a/b -e -t partitioned",
        "namespaces set-backlog-quota a/b -p never",
        "resource-quotas get -n a/b",
        "topics reset-cursor a/b/t -s s",
        "topics reset-cursor a/b/t -s s -m 3",
        "topics expire-messages a/b/t -s s -t 3 -p 1:1",
        "topics update-subscription-properties a/b/t -s s",
        "topics create a/b/t -m x",
        "topics get-message-id a/b/t -d yesterday",
        "schemas get a/b/t -v 1 -a",
        "schemas upload a/b/t -f /no/such/file",
        "tenants list --watch 0",
        "tenants create t --watch 3",
        "--request-timeout 0 tenants list",
    ],
)
def test_wrong_use_is_exit_code_2(asked: Asked, line: str) -> None:
    result = asked.run(*line.split())
    assert result.exit_code == 2, result.output
    assert asked.requests == []


def test_help_tells_that_peeking_makes_a_subscription(asked: Asked) -> None:
    told = " ".join(asked.run("topics", "peek-messages", "--help").output.split())
    assert "A subscription that isn't there is made, as by Apache's broker, and keeps" in told


def test_a_retention_without_its_units(asked: Asked) -> None:
    given = ("namespaces", "set-retention", "a/b")
    small = asked.run(*given, "-s", "100", "-t", "30m")
    assert "--size: 100 bytes are less than one MB; write the unit, such as 100M" in small.stderr
    short = asked.run(*given, "-s", "100M", "-t", "30")
    assert "--time: 30 seconds are less than one minute; write the unit, such as" in short.stderr
    rounded = asked.run(*given, "-s", "0", "-t", "90s")
    assert rounded.stderr == "--time: 90 seconds are rounded to 1 minute\n"
    body = '{"retentionTimeInMinutes":1,"retentionSizeInMB":0}'
    assert asked.requests == [f"POST /admin/v2/namespaces/a/b/retention {body}"]


def test_what_was_meant_is_named(asked: Asked) -> None:
    assert "Did you mean stats" in asked.run("topics", "stat", "t").output
    assert "Did you mean topics" in asked.run("topic", "list", "a/b").output
    assert "--topic-domain" in asked.run("topics", "list", "a/b", "--topic-domian", "x").output


def test_a_refusal_is_exit_code_1_with_its_reason(asked: Asked) -> None:
    asked.answers["GET /admin/v2/tenants/t"] = refusal(404, "Tenant does not exist")
    result = asked.run("tenants", "get", "t")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "HTTP status 404: Tenant does not exist" in result.stderr


def test_what_brokers_answer_nothing_to(asked: Asked) -> None:
    assert asked.run("brokers", "backlog-quota-check").output == "ok\n"
    told = "Successfully trigger broker shutdown gracefully\n"
    assert asked.run("brokers", "shutdown").output == told


def test_updating_a_tenant_keeps_what_is_not_given(asked: Asked) -> None:
    before = {"adminRoles": ["a"], "allowedClusters": ["c"]}
    asked.answers["GET /admin/v2/tenants/t"] = before
    assert asked.run("tenants", "update", "t", "-r", "b").exit_code == 0
    assert asked.requests[1] == (
        'POST /admin/v2/tenants/t {"adminRoles":["b"],"allowedClusters":["c"]}'
    )


def test_a_new_tenant_is_in_all_clusters(asked: Asked) -> None:
    asked.answers["GET /admin/v2/clusters"] = ["x", "y"]
    assert asked.run("tenants", "create", "t").exit_code == 0
    assert asked.requests[1].endswith('{"adminRoles":[],"allowedClusters":["x","y"]}')


def test_topics_of_both_domains(asked: Asked) -> None:
    asked.answers["GET /admin/v2/persistent/a/b"] = ["persistent://a/b/t"]
    asked.answers["GET /admin/v2/non-persistent/a/b"] = ["non-persistent://a/b/u"]
    result = asked.run("topics", "list", "a/b")
    assert result.output.splitlines() == ["persistent://a/b/t", "non-persistent://a/b/u"]
    assert asked.run("topics", "list", "a/b", "-td", "non_persistent").output.splitlines() == [
        "non-persistent://a/b/u"
    ]


def test_several_topics_are_deleted(asked: Asked, tmp_path: Path) -> None:
    names = ["persistent://a/b/t1", "persistent://a/b/t2", "persistent://a/b/u"]
    asked.answers["GET /admin/v2/persistent/a/b"] = names
    asked.answers["DELETE /admin/v2/persistent/a/b/t1"] = refusal(412, "in use")
    result = asked.run("topics", "delete", "a/b/t.*", "-r", "-f")
    assert result.exit_code == 1
    assert [line for line in asked.requests if line.startswith("DELETE")] == [
        "DELETE /admin/v2/persistent/a/b/t1?force=true",
        "DELETE /admin/v2/persistent/a/b/t2?force=true",
    ]
    assert "in use" in result.stderr
    listed = tmp_path / "topics"
    listed.write_text("a/b/x\n\na/b/y\n")
    asked.requests.clear()
    assert asked.run("topics", "delete", str(listed), "--from-file").exit_code == 0
    assert [line.partition("?")[0] for line in asked.requests] == [
        "DELETE /admin/v2/persistent/a/b/x",
        "DELETE /admin/v2/persistent/a/b/y",
    ]


def test_a_cluster_is_deleted_with_what_uses_it(asked: Asked) -> None:
    asked.answers |= {
        "GET /admin/v2/tenants": ["t", "u"],
        "GET /admin/v2/tenants/t": {"allowedClusters": ["c"]},
        "GET /admin/v2/tenants/u": {"allowedClusters": ["d"]},
        "GET /admin/v2/namespaces/t": ["t/n"],
        "GET /admin/v2/persistent/t/n": ["persistent://t/n/x"],
        "GET /admin/v2/persistent/t/n/partitioned": ["persistent://t/n/p"],
    }
    assert asked.run("clusters", "delete", "c", "-a").exit_code == 0
    assert [line for line in asked.requests if line.startswith("DELETE")] == [
        "DELETE /admin/v2/persistent/t/n/p/partitions?force=true",
        "DELETE /admin/v2/persistent/t/n/x?force=true",
        "DELETE /admin/v2/namespaces/t/n?force=false",
        "DELETE /admin/v2/tenants/t?force=false",
        "DELETE /admin/v2/clusters/c",
    ]


def test_the_brokers_own_cluster_is_marked(asked: Asked) -> None:
    asked.answers["GET /admin/v2/clusters"] = ["x", "y"]
    asked.answers["GET /admin/v2/brokers/configuration/runtime"] = {"clusterName": "y"}
    assert asked.run("clusters", "list", "-c").output == "x\ny(*)\n"


def test_lookups(asked: Asked) -> None:
    asked.answers["GET /admin/v2/persistent/a/b/t/partitions"] = {"partitions": 2}
    for number, broker in ((0, "pulsar://x"), (1, "pulsar://y")):
        path = f"GET /lookup/v2/topic/persistent/a/b/t-partition-{number}"
        asked.answers[path] = {"brokerUrl": broker}
    asked.answers["GET /lookup/v2/topic/persistent/a/b/t"] = {"brokerUrl": "pulsar://x"}
    assert asked.run("topics", "lookup", "a/b/t").output == "pulsar://x\n"
    found = json.loads(asked.run("topics", "partitioned-lookup", "a/b/t").output)
    assert found["persistent://a/b/t-partition-1"] == "pulsar://y"
    by_broker = json.loads(asked.run("topics", "partitioned-lookup", "a/b/t", "-s").output)
    assert by_broker["pulsar://x"] == ["persistent://a/b/t-partition-0"]
    asked.answers["GET /admin/v2/persistent/a/b/t/partitions"] = {"partitions": 0}
    assert asked.run("topics", "partitioned-lookup", "a/b/t").exit_code == 1


@pytest.mark.parametrize(
    ("keep", "before", "told"),
    [
        ("0", 5, "for messages before 5:0"),
        ("10", 5, "for messages before 5:0"),
        ("29", 5, "for messages before 5:0"),
        ("30", 4, "for messages before 4:0"),
        ("40", None, "Nothing to offload"),
    ],
)
def test_what_is_offloaded(asked: Asked, keep: str, before: int | None, told: str) -> None:
    asked.answers[f"GET {T}/internalStats"] = {
        "ledgers": [
            {"ledgerId": 3, "size": 10},
            {"ledgerId": 4, "size": 20},
            {"ledgerId": 5, "size": 0},
        ],
        "currentLedgerSize": 10,
    }
    result = asked.run("topics", "offload", "a/b/t", "-s", keep)
    assert told in result.output
    sent = [line for line in asked.requests if line.startswith("PUT")]
    if before is None:
        assert (result.exit_code, result.stdout, sent) == (0, f"{told}\n", [])
    else:
        assert sent == [f'PUT {T}/offload {{"ledgerId":{before},"entryId":0,"partitionIndex":-1}}']


def test_the_end_of_a_compaction_is_waited_for(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = iter(["RUNNING", "SUCCESS"])
    path = f"GET {T}/compaction"
    asked.answers[path] = {"status": "RUNNING"}

    def slept(seconds: float) -> None:
        asked.answers[path] = {"status": next(states)}

    monkeypatch.setattr("time.sleep", slept)
    result = asked.run("topics", "compaction-status", "a/b/t", "-w")
    assert (result.exit_code, result.output) == (0, "Compaction was a success\n")
    assert len(asked.requests) == 3
    asked.answers[path] = {"status": "ERROR", "lastError": "disk"}
    result = asked.run("topics", "compaction-status", "a/b/t")
    assert (result.exit_code, "Error compacting: disk" in result.stderr) == (1, True)


def test_messages_are_shown(asked: Asked) -> None:
    headers = {
        "X-Pulsar-Message-ID": "5:0",
        "X-Pulsar-PROPERTY": '{"a":"b"}',
        "X-Pulsar-publish-time": "2026-01-01T00:00:00Z",
        "X-Pulsar-partition-key": "k",
    }
    asked.answers[f"GET {S}/position/1"] = answered(b"hello \x00 world, longer than a row", headers)
    asked.answers[f"GET {S}/position/2"] = refusal(404, "no such message")
    result = asked.run("topics", "peek-messages", "a/b/t", "-s", "s", "-n", "3")
    assert result.exit_code == 0, result.output
    assert "Message ID: 5:0\n" in result.output
    assert "Key: k\n" in result.output
    assert "a    b\n" in result.output
    rows = [line for line in result.output.splitlines() if re.match(r"\|[0-9a-f]{8}\|", line)]
    assert rows[0].endswith("|hello . world, l|")
    assert rows[1].endswith("|onger than a row|")


def test_what_is_not_committed_is_not_shown(asked: Asked) -> None:
    asked.answers[f"GET {S}/position/1"] = answered(b"gone", {"X-Pulsar-txn-aborted": "true"})
    asked.answers[f"GET {S}/position/2"] = answered(b"mark", {"X-Pulsar-marker-type": "10"})
    asked.answers[f"GET {S}/position/3"] = answered(b"good", {"X-Pulsar-Message-ID": "1:3"})
    asked.answers[f"GET {S}/position/4"] = answered(b"open", {"X-Pulsar-txn-uncommitted": "true"})
    command = ("topics", "peek-messages", "a/b/t", "-s", "s", "-n", "9")
    shown = asked.run(*command).output
    assert ("good" in shown, "gone" in shown, "mark" in shown, "open" in shown) == (
        True, False, False, False,
    )  # fmt: skip
    asked.answers[f"GET {S}/position/5"] = refusal(404, "end")
    everything = asked.run(*command, "-til", "READ_UNCOMMITTED", "-ssm").output
    assert all(word in everything for word in ("good", "gone", "mark", "open"))


def test_a_schema_is_uploaded_from_a_file(asked: Asked, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text('{"type": "STRING", "schema": ""}')
    assert asked.run("schemas", "upload", "a/b/t", "-f", str(file)).exit_code == 0
    path = "POST /admin/v2/schemas/a/b/t/schema"
    assert asked.requests == [path + ' {"properties":{},"type":"STRING","schema":""}']
    file.write_text("[]")
    assert asked.run("schemas", "upload", "a/b/t", "-f", str(file)).exit_code == 2


def test_clearing_a_backlog_is_asked_for(asked: Asked) -> None:
    refused = asked.run("namespaces", "clear-backlog", "a/b", input="n\n")
    assert (refused.exit_code, asked.requests) == (1, [])
    assert asked.run("namespaces", "clear-backlog", "a/b", input="y\n").exit_code == 0
    assert asked.requests == [f"POST {NS}/clearBacklog"]


def test_a_get_is_watched(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    asked.answers["GET /admin/v2/tenants"] = ["t"]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    result = asked.run("tenants", "list", "--watch", "0.5")
    assert (result.output.count("t\n"), slept, result.exit_code) == (3, [0.5] * 3, 130)
    assert result.stderr == ""


WHY = "GET /admin/v2/persistent/public/default/t/subscription/s/why"
TOPIC = "persistent://public/default/t"


def _finding(level: str, topic: str = TOPIC) -> dict[str, str]:
    place = {"topic": topic, "subscription": "s"}
    return {**place, "code": "C", "level": level, "sentence": "It waits.", "advice": "Do."}


def test_why_is_told_in_lines(asked: Asked) -> None:
    asked.answers[WHY] = [_finding("warn"), _finding("ok")]
    result = asked.run("topics", "why", "t", "-s", "s")
    assert (result.exit_code, result.output) == (0, "warn: It waits.\n      Do.\nok: It waits.\n")
    asked.answers[WHY] = [
        _finding("fail", f"{TOPIC}-partition-0"),
        _finding("ok", f"{TOPIC}-partition-1"),
    ]
    result = asked.run("topics", "why", "t", "-s", "s")
    assert result.exit_code == 1
    assert result.output.splitlines()[0] == f"fail: {TOPIC}-partition-0: It waits."
    for options in (["--json"], ["--format", "json"]):
        result = asked.run("topics", "why", "t", "-s", "s", *options)
        assert result.exit_code == 1
        assert json.loads(result.output) == asked.answers[WHY]


def test_what_is_not_set_is_null(asked: Asked) -> None:
    for command in ("get-property", "remove-property"):
        result = asked.run("namespaces", command, "a/b", "-k", "x")
        assert (result.exit_code, result.output) == (0, "null\n")
    assert asked.run("namespaces", "clear-properties", "a/b").output == ""
