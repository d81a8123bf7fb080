"""What the command line says of credentials that are missing, or can't be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

OF_THE_CLIENT = "see the client's option authentication"
"""How the client's error tells where credentials go; commands have options for it."""


def told_of_options(text: str) -> str:
    """An error's text with the command's options instead of the client's."""
    return text.replace(OF_THE_CLIENT, "give --auth-plugin and --auth-params")


def read_now(read: Callable[[], T]) -> T:
    """The credentials that `read` reads. Raises InvalidArgumentError if they can't be read, as
    nobody is asked before: it is the command line, or its file, that is wrong.
    """
    from geminga.errors import AuthenticationError, InvalidArgumentError

    try:
        return read()
    except AuthenticationError as error:
        text, cause = str(error), error.__cause__
        if isinstance(cause, OSError):
            text = f"the token's file {cause.filename} can't be read: {cause.strerror}"
        raise InvalidArgumentError(f"{text}; see --auth-params") from None
