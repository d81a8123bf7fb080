"""Where a redirect leads."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from geminga_broker.admin.owners import redirect
from geminga_broker.admin.rest import RestError
from geminga_broker.cluster.addresses import Addresses

PLAIN, SECURE = "http://b:8080", "https://b:8443"


@pytest.mark.parametrize(
    ("scheme", "plain", "secure", "to"),
    [
        ("http", PLAIN, SECURE, PLAIN),
        ("http", "", SECURE, SECURE),
        ("https", PLAIN, SECURE, SECURE),
        ("https", PLAIN, "", None),
        ("http", "", "", None),
    ],
)
def test_credentials_sent_by_https_are_sent_on_by_https_only(
    scheme: str, plain: str, secure: str, to: str | None
) -> None:
    request = Request(
        {
            "type": "http",
            "method": "GET",
            "scheme": scheme,
            "path": "/admin/v2/x%2Fy",
            "query_string": b"a=b",
            "headers": [],
        }
    )
    addresses = Addresses("", plain, "", secure)
    if to is None:
        with pytest.raises(RestError, match="not configured") as refused:
            redirect(request, addresses)
        assert refused.value.status == 412
    else:
        assert redirect(request, addresses).location == f"{to}/admin/v2/x%2Fy?a=b"
