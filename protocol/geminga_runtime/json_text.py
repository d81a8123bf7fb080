"""JSON that others wrote: nodes of the metadata store, answers of other servers, requests.

Such bytes are whatever a failing disk, another program or an attacker made of them. msgspec alone
raises errors of three kinds for them; one that is forgotten ends the task that read them.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


class BadJson(msgspec.DecodeError):
    """It is no JSON, no UTF-8, nested too deeply, or of another shape; the text says what. Also a
    ValueError.
    """


def read_json(data: bytes | str | msgspec.Raw, kind: type[T], *, strict: bool = True) -> T:
    """The value, of type `kind` (a struct, a dict …). Unless `strict`, texts count as the numbers
    and booleans that stand in them. Raises BadJson.
    """
    try:
        return msgspec.json.decode(data, type=kind, strict=strict)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise BadJson(str(error)) from None
    except RecursionError:
        raise BadJson("it is nested too deeply") from None
