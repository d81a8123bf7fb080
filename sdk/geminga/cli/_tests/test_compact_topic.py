"""`geminga compact-topic` against answers that are given."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from geminga.cli import compact_topic
from geminga.cli.admin._tests.asking import Asked, refusal

T = "/admin/v2/persistent/a/b/t"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(compact_topic.compact_topic, list(arguments))


def test_the_end_is_waited_for(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    states = iter(["RUNNING", "SUCCESS"])
    status = f"GET {T}/compaction"
    asked.answers[status] = {"status": "RUNNING"}

    def slept(seconds: float) -> None:
        asked.answers[status] = {"status": next(states)}

    monkeypatch.setattr("time.sleep", slept)
    result = run("-t", "a/b/t")
    assert (result.exit_code, result.output) == (0, "persistent://a/b/t is compacted\n")
    first, *rest = asked.requests
    assert first.startswith(f"GET {T}/partitions")
    assert rest == [f"PUT {T}/compaction", *[status] * 3]


def test_each_partition(asked: Asked) -> None:
    asked.answers[f"GET {T}/partitions"] = {"partitions": 2}
    for number in range(2):
        asked.answers[f"GET {T}-partition-{number}/compaction"] = {"status": "SUCCESS"}
    result = run("--topic", "persistent://a/b/t")
    assert result.exit_code == 0, result.output
    begun = [line for line in asked.requests if line.startswith("PUT")]
    assert begun == [f"PUT {T}-partition-{number}/compaction" for number in range(2)]


def test_one_that_runs_already(asked: Asked) -> None:
    asked.answers[f"PUT {T}/compaction"] = refusal(409, "Compaction already in progress.")
    asked.answers[f"GET {T}/compaction"] = {"status": "SUCCESS"}
    result = run("-t", "a/b/t")
    assert result.exit_code == 0
    assert "is being compacted already" in result.output


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({"status": "ERROR", "lastError": "disk"}, "was not compacted: disk"),
        ({"status": "NOT_RUN"}, "its broker stopped, or unloaded it, meanwhile"),
    ],
)
def test_failures(status: dict[str, str], told: str, asked: Asked) -> None:
    asked.answers[f"GET {T}/compaction"] = status
    result = run("-t", "a/b/t")
    assert (result.exit_code, told in result.output) == (1, True)


def test_wrong_arguments(asked: Asked, tmp_path: Path) -> None:
    assert run().exit_code == 2
    result = run("-t", "a/b/c/d/e/f")
    assert result.exit_code == 2, result.output
    result = run("-t", "a/b/t", "-c", str(tmp_path / "none.conf"))
    assert (result.exit_code, "can't be read" in result.output) == (2, True)
    asked.answers[f"GET {T}/partitions"] = refusal(404, "Topic not found")
    result = run("-t", "a/b/t")
    assert (result.exit_code, "Topic not found" in result.output) == (1, True)


def test_where_a_configuration_says(asked: Asked, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    asked.answers[f"GET {T}/compaction"] = {"status": "SUCCESS"}
    conf.write_text("advertisedAddress=b.org\nwebServicePort=81\n")
    run("-t", "a/b/t", "-c", str(conf))
    conf.write_text(
        "brokerClientTlsEnabled=true\nwebServicePortTls=8444\n"
        "brokerClientAuthenticationPlugin=token\nbrokerClientAuthenticationParameters=token:t\n"
    )
    run("-t", "a/b/t", "-c", str(conf))
    run("-t", "a/b/t", "-c", str(conf), "--admin-url", "http://x:1", "--auth-params", "token:u")
    plain, secure, given = asked.places
    assert (plain.admin_url, plain.auth_plugin) == ("http://b.org:81", None)
    assert (secure.admin_url, secure.auth_plugin) == ("https://localhost:8444", "token")
    assert (given.admin_url, given.auth_params) == ("http://x:1", "token:u")
