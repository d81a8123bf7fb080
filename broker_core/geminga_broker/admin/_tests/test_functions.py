"""Who is told that there are no functions and packages (OP-03, PX-22)."""

from __future__ import annotations

from geminga_broker.admin._tests.test_guard import call, secured
from geminga_broker.admin.functions import NO_PACKAGES, NO_WORKER, routes

FUNCTION = "/admin/v3/functions/t/n/f"
PACKAGES = "/admin/v3/packages/function/t/n"
FORM = "multipart/form-data; boundary=B"


async def test_every_role_is_told_that_there_are_no_functions() -> None:
    async with secured() as (_, app):
        assert (await call(app, "GET", FUNCTION, None)).status == 401
        for role in ("nobody", "tadmin", "root"):
            told = await call(app, "GET", FUNCTION, role)
            assert (told.status, told.reason) == (409, NO_WORKER)


async def test_packages_are_for_those_that_may_use_them() -> None:
    async with secured() as (_, app):
        grants = "/admin/v2/namespaces/t/n/permissions/packer"
        assert (await call(app, "POST", grants, "root", body=["packages"])).status == 204
        assert (await call(app, "GET", PACKAGES, None)).status == 401
        for role in ("nobody", "fn", "cons"):
            told = await call(app, "GET", PACKAGES, role)
            text = f"Role {role} has not the 'package' permission to do the packages operations."
            assert (told.status, told.reason) == (401, text)
        proxied = await call(app, "GET", PACKAGES, "proxy", x_original_principal="nobody")
        assert (proxied.status, proxied.reason.partition(" has")[0]) == (401, "Role proxy")
        for role in ("packer", "tadmin", "root"):
            told = await call(app, "GET", PACKAGES, role)
            assert (told.status, told.reason) == (503, NO_PACKAGES)


async def test_a_package_that_is_sent_is_not_read() -> None:
    async with secured() as (_, app):
        for path, status in ((FUNCTION, 409), (f"{PACKAGES}/p/1", 503)):
            told = await call(app, "POST", path, "root", content_type=FORM, unread=True)
            assert told.status == status


def test_no_operation_is_there_twice() -> None:
    found = [(route.path, *sorted(route.methods or ())) for route in routes()]
    assert len(found) == len(set(found)) == 92
