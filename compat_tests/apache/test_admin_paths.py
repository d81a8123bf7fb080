"""docs/ADMIN.md says what is served (spec OP-03)."""

from __future__ import annotations

import re

import pytest

from compat_tests.apache import admin_paths
from compat_tests.missing import APACHE, skipped_without


async def test_the_page_is_current() -> None:
    """If it isn't: `python -m compat_tests.apache.admin_paths`."""
    ours = await admin_paths.served()
    assert admin_paths.PAGE.read_text() == admin_paths.page(admin_paths.LIST.read_text(), ours)


@pytest.mark.slow
def test_the_list_is_apaches() -> None:
    with skipped_without(APACHE):
        assert admin_paths.paths_of_apache() == admin_paths.LIST.read_text()


async def test_what_is_served_is_listed() -> None:
    """A path of ours that Apache's broker lacks would be a misspelt one."""
    listed = {
        (re.sub(r"\{[^}]*\}", "{}", path), method)
        for path, method in (line.split(" ") for line in admin_paths.LIST.read_text().splitlines())
    }
    ours = await admin_paths.served()
    unknown = {
        f"{method} {path}"
        for path, methods in ours.items()
        for method in methods - {"HEAD"}
        if not path.endswith(admin_paths.OWN)
        if path.startswith(("/admin/v2", "/admin/v3", "/lookup")) and (path, method) not in listed
    }
    assert not unknown
