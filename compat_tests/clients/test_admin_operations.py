"""The operations of `geminga.admin` beside those of Apache's broker: each is one of them, and what
isn't there is listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.apache.admin_paths import CLASSES, OWN
from compat_tests.apache.jars import run_java
from compat_tests.missing import APACHE, skipped_without
from geminga._admin.declared import Declaration
from geminga._admin.families.everything import Families
from geminga._admin.policies import Declared, namespace_setting, topic_setting
from geminga._admin.policy_paths import PolicyPath

FOLDER = Path(__file__).resolve().parents[1] / "apache"
LIST = FOLDER / "admin_paths.txt"
QUERIES = FOLDER / "admin_queries.txt"
WHOLE = {"namespace": "a/b", "topic": "a/b/c", "domain": "persistent"}
_NAMES = re.compile(r"\{[^}]*\}")
_WIDE = {
    "{topic}": "persistent/{}/{}/{}",
    "{topic:schema}": "{}/{}/{}",
    "{namespace}": "{}/{}",
    "{domain}/{}": "persistent/{}",
}

NOT_THERE = {
    # Transactions, and messages over REST.
    *("/admin/v3/", "/topics/"),
    # Functions, which no broker of ours has.
    *("/admin/v2/functions/", "/admin/v2/worker/", "/admin/v2/worker-stats/"),
    # Of one kind of topics only: the paths of persistent ones serve both.
    "/admin/v2/non-persistent/",
    "/admin/v2/broker-stats/broker-resource-availability/",
    "GET /admin/v2/namespaces/{}/{}/scanOffloadedLedgers",
    "GET /admin/v2/persistent/{}/{}/{}/backlog",
}
"""What the client has no method for: whole operations, or the beginnings of paths."""


OF_A_PROXY = {
    *(("GET", f"/proxy-stats/{page}") for page in ("connections", "topics", "logging")),
    ("POST", "/proxy-stats/logging/{}"),
}
"""Of Apache's class ProxyStats; the other operations are a broker's."""


def shaped(path: str) -> str:
    for name, wide in _WIDE.items():
        path = path.replace(name, wide)
    return _NAMES.sub("{}", path)


def operations() -> Iterator[tuple[str, str]]:
    """Method and path of all that the client can send."""
    families = Families(lambda request: None)
    for family in vars(families).values():
        kind = type(family)
        for name, value in vars(kind).items():
            declaration = getattr(value, "declaration", None)
            if isinstance(declaration, Declaration):
                yield declaration.method, shaped(declaration.path)
            elif isinstance(value, Declared):
                is_topic = "Topic" in kind.__name__
                base = "/admin/v2/{topic}" if is_topic else "/admin/v2/namespaces/{namespace}"
                has_removal = not isinstance(value, namespace_setting | topic_setting)
                yield from of_policy(value.where, shaped(base), has_removal)
            else:
                assert name.startswith("_"), f"{kind.__name__}.{name} is no operation"


def of_policy(where: PolicyPath[object], base: str, has_removal: bool) -> Iterator[tuple[str, str]]:
    yield "GET", where.reading(base).path
    put = where.setting(base, "x" if where._in_path else 1)
    yield put.method, put.path.removesuffix("/x") + ("/{}" if where._in_path else "")
    if has_removal:
        removal = where.removing(base)
        yield removal.method, removal.path


def of_apache() -> set[tuple[str, str]]:
    found = set()
    for line in LIST.read_text().splitlines():
        path, method = line.split(" ")
        shape = _NAMES.sub("{}", path).replace(
            "/lookup/v2/topic/{}/", "/lookup/v2/topic/persistent/"
        )
        found.add((method, shape))
    return found | OF_A_PROXY


def test_each_operation_is_one_of_apache_s() -> None:
    ours = set(operations())
    assert len(ours) > 300
    assert [each for each in sorted(ours - of_apache()) if not each[1].endswith(OWN)] == []


def test_what_is_not_there_is_listed() -> None:
    missing = [f"{method} {path}" for method, path in sorted(of_apache() - set(operations()))]
    left = [
        each
        for each in missing
        if not any(each == name or each.partition(" ")[2].startswith(name) for name in NOT_THERE)
    ]
    assert left == []


def test_every_operation_says_what_it_does() -> None:
    families = Families(lambda request: None)
    for family in vars(families).values():
        assert type(family).__doc__
        for name, value in vars(type(family)).items():
            if hasattr(value, "declaration"):
                assert value.__doc__, name


def queries_of_apache() -> dict[tuple[str, str], set[str]]:
    """The query parameters of each operation; several classes may serve one."""
    found: dict[tuple[str, str], set[str]] = {}
    for line in QUERIES.read_text().splitlines():
        path, method, *names = line.split(" ")
        shape = _NAMES.sub("{}", path).replace("/topic/{}/{}", "/topic/persistent/{}")
        found.setdefault((method, shape), set()).update(names)
    return found


def test_the_names_in_queries_are_apache_s() -> None:
    known = queries_of_apache()
    wrong = []
    families = Families(lambda request: None)
    for family in vars(families).values():
        for value in vars(type(family)).values():
            declaration = getattr(value, "declaration", None)
            if not isinstance(declaration, Declaration):
                continue
            given = dict.fromkeys(declaration.signature.parameters, "1")
            given |= {name: whole for name, whole in WHOLE.items() if name in given}
            request = declaration.request((), given)
            operation = declaration.method, shaped(declaration.path)
            used = {name for name, _ in request.query}
            if not used <= known.get(operation, set()):
                wrong.append((operation, used - known.get(operation, set())))
    assert wrong == []


@pytest.mark.slow
@pytest.mark.java
def test_the_list_of_queries_is_apache_s() -> None:
    with skipped_without(APACHE):
        assert run_java("AdminQueries", CLASSES) == QUERIES.read_text()
