"""The three faces of the admin client have the same members, and do the same."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Iterator

import pytest
import trio

import geminga
import geminga.admin
import geminga.aio.admin
import geminga.blocking.admin
import geminga.testing
from geminga._admin.blocking.families import everything as blocking
from geminga._admin.declared import declaration_of, type_named
from geminga._admin.families import everything
from geminga.admin import ConflictError, NotFoundError, TenantInfo

FACES = (geminga.admin, geminga.aio.admin, geminga.blocking.admin)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with geminga.testing.broker() as broker:
        yield broker.web_url


def test_the_same_names() -> None:
    assert geminga.admin.__all__ == geminga.aio.admin.__all__ == geminga.blocking.admin.__all__
    for face in FACES:
        for name in face.__all__:
            assert getattr(face, name) is not None
        assert "connect" in dir(face)


def families() -> list[tuple[str, type, type]]:
    ours = everything.Families(None)
    theirs = blocking.Families(None)
    assert list(vars(ours)) == list(vars(theirs))
    return [(name, type(vars(ours)[name]), type(vars(theirs)[name])) for name in vars(ours)]


@pytest.mark.parametrize(("name", "one", "other"), families(), ids=[f[0] for f in families()])
def test_the_blocking_family_is_the_same(name: str, one: type, other: type) -> None:
    assert one.__doc__ == other.__doc__
    assert list(vars(one)) == list(vars(other))
    for member, value in vars(one).items():
        if not hasattr(value, "declaration"):
            continue
        twin = vars(other)[member]
        assert inspect.signature(value) == inspect.signature(twin)
        assert value.__doc__ == twin.__doc__
        assert inspect.iscoroutinefunction(value)
        assert not inspect.iscoroutinefunction(twin)
        own, theirs = declaration_of(value), declaration_of(twin)
        assert (own.method, own.path) == (theirs.method, theirs.path)


@pytest.mark.parametrize(("name", "one", "other"), families(), ids=[f[0] for f in families()])
def test_the_answers_have_types(name: str, one: type, other: type) -> None:
    """What annotations name is found when an answer comes."""
    for value in vars(one).values():
        if hasattr(value, "declaration"):
            annotation = str(declaration_of(value).signature.return_annotation)
            type_named(annotation.removesuffix(" | None"))


async def test_space_on_bookies(url: str) -> None:
    async with geminga.admin.connect(url) as admin:
        [found] = (await admin.bookies.space()).values()
        assert found is not None
        assert 0 <= found.free_bytes <= found.total_bytes


def test_options_stand_in_signatures() -> None:
    for face in FACES:
        parameters = inspect.signature(face.connect).parameters
        assert parameters["request_timeout_s"].default == 60.0
        assert parameters["tls_validate_hostname"].default is True
        assert parameters["trusted_broker_hosts"].kind is inspect.Parameter.KEYWORD_ONLY


async def test_in_trio(url: str) -> None:
    async with geminga.admin.connect(url) as admin:
        await admin.tenants.create("trio", TenantInfo(allowed_clusters=["standalone"]))
        with pytest.raises(ConflictError):
            await admin.tenants.create("trio", TenantInfo(allowed_clusters=["standalone"]))
        await admin.namespaces.create("trio/ns")
        await admin.namespace_policies.message_ttl.set("trio/ns", 60)
        assert await admin.namespace_policies.message_ttl.get("trio/ns") == 60
        await admin.topics.create("trio/ns/t")
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(admin.stats.get, "trio/ns/t")
        assert repr(admin) == f"<AdminClient of {url}>"
    alone = await geminga.admin.connect(url)
    assert "trio" in await alone.tenants.list()
    await alone.aclose()
    with pytest.raises(geminga.AlreadyClosedError):
        await alone.tenants.list()


def test_in_asyncio(url: str) -> None:
    async def main() -> None:
        async with geminga.aio.admin.connect(url) as admin:
            await admin.tenants.create("aio", TenantInfo(allowed_clusters=["standalone"]))
            await admin.namespaces.create("aio/ns")
            await admin.namespace_policies.message_ttl.set("aio/ns", 60)
            assert await admin.namespace_policies.message_ttl.get("aio/ns") == 60
            made = [admin.topics.create(f"aio/ns/t{number}") for number in range(10)]
            await asyncio.gather(*made)
            assert len(await admin.topics.list("aio/ns")) == 10
            with pytest.raises(NotFoundError):
                await admin.tenants.get("nobody")
            assert repr(admin) == f"<AdminClient of {url}>"
        with pytest.raises(geminga.AlreadyClosedError):
            await admin.tenants.list()

    asyncio.run(main())


def test_in_threads(url: str) -> None:
    with geminga.blocking.admin.connect(url) as admin:
        admin.tenants.create("block", TenantInfo(allowed_clusters=["standalone"]))
        admin.namespaces.create("block/ns")
        admin.namespace_policies.message_ttl.set("block/ns", 60)
        assert admin.namespace_policies.message_ttl.get("block/ns") == 60
        admin.namespace_policies.message_ttl.remove("block/ns")
        assert admin.namespace_policies.message_ttl.get("block/ns") is None
        admin.topics.create("block/ns/t")
        admin.topic_policies.max_producers.set("block/ns/t", 3)
        with pytest.raises(NotFoundError):
            admin.tenants.get("nobody")
    admin.close()
    with pytest.raises(geminga.AlreadyClosedError):
        admin.tenants.list()


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("url", "options", "text"),
    [
        ("pulsar://a:6650", {}, "web service's http:// or https:// URL"),
        ("nonsense", {}, "service_url must begin with http:// or https://, not 'nonsense'"),
        ("127.0.0.1:8080", {}, "service_url must begin with http:// or https://, not"),
        (5, {}, "service_url must be a text, not 5"),
        ("http://a", {"no_such": 1}, "unknown option 'no_such'"),
        ("http://a", {"request_timeout_s": 0}, "request_timeout_s must be above 0"),
        ("http://a", {"authentication": "secret"}, "authentication must be"),
        ("http://a", {"trusted_broker_hosts": "a"}, "trusted_broker_hosts must be a list"),
    ],
)
def test_wrong_options(face: object, url: object, options: dict[str, object], text: str) -> None:
    with pytest.raises(geminga.InvalidArgumentError, match=text) as caught:
        face.connect(url, **options)
    assert "secret" not in str(caught.value)


async def test_the_wrong_face_is_named() -> None:
    with pytest.raises(geminga.InvalidArgumentError, match=r"geminga\.connect in Trio"):
        async with geminga.aio.admin.connect("http://a"):
            raise AssertionError


def test_importing_the_modules_is_cheap() -> None:
    code = (
        "import sys, geminga.admin, geminga.aio.admin, geminga.blocking.admin; "
        "print([m for m in ('trio', 'msgspec', 'google.protobuf') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
