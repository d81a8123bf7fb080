"""Types of request bodies (Jersey's message readers, before Apache's REST interface). Pure."""

from __future__ import annotations

import re
import types
import typing

_TYPE = re.compile(r"([\w!#$&^.+*-]+)/([\w!#$&^.+*-]+)\s*(;.*)?", re.ASCII)
_JSON = ("json", "x-json", "javascript", "x-javascript")
_SCALARS = (int, bool, str)
_PLAIN_AT = ("/admin/v2/persistent/", "/admin/v2/non-persistent/")
"""Where a number, a boolean or a text may be plain text; Apache's other classes say JSON."""


def refusal(path: str, content_type: str | None, kinds: tuple[object, ...], has_body: bool) -> int:
    """The status of a request at `path` whose body of that type is read as one of `kinds`; 0 if
    it is taken. Without a type and a body there is nothing to refuse.
    """
    if content_type is None:
        return 415 if has_body else 0
    match = _TYPE.fullmatch(content_type.strip())
    if match is None:
        return 400
    kind, sub = match[1].lower(), match[2].lower()
    if sub in _JSON or sub.endswith("+json"):
        return 0
    is_plain = (kind, sub) == ("text", "plain") and path.startswith(_PLAIN_AT)
    return 0 if is_plain and _is_scalar(kinds[0]) else 415


def _is_scalar(kind: object) -> bool:
    if isinstance(kind, types.UnionType):
        return any(each in _SCALARS for each in typing.get_args(kind))
    return kind in _SCALARS
