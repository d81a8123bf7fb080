"""Which failed starts are worth another try: exit code 1, and 2 for the others."""

from __future__ import annotations

import errno
import os
import socket

import pytest
import trio

from geminga_runtime.command_line import StartFailed, may_pass, serve_command
from geminga_runtime.errors import BindFailed
from geminga_runtime.metadata.api import BadVersion, MetadataError, StoreUnavailable
from geminga_runtime.settings import ConfigError


def bind_failed(error: OSError) -> BindFailed:
    failed = BindFailed.of("webServicePort", "host", 8080, error)
    failed.__cause__ = error
    return failed


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("refused", "passes"),
    [
        (StoreUnavailable("no session with ZooKeeper"), True),
        (caused(MetadataError("the file is in use"), BlockingIOError()), True),
        (bind_failed(os_error(errno.EADDRINUSE)), True),
        (caused(bind_failed(OSError()), os_error(errno.EADDRINUSE)), True),
        (bind_failed(os_error(errno.EADDRNOTAVAIL)), True),
        (bind_failed(socket.gaierror(socket.EAI_AGAIN, "no name server")), True),
        (bind_failed(socket.gaierror(socket.EAI_NONAME, "no such name")), False),
        (bind_failed(os_error(errno.EACCES)), False),
        (BindFailed("there are no such ports"), False),
        (ConfigError("a key is wrong"), False),
        (BadVersion("/a"), False),
        (caused(MetadataError("the disk is read-only"), os_error(errno.EROFS)), False),
    ],
)
def test_what_may_pass(refused: Exception, passes: bool) -> None:
    assert may_pass(refused) is passes


@pytest.mark.parametrize(
    ("refused", "code"), [(StoreUnavailable("away"), 1), (ConfigError("wrong"), 2)]
)
def test_exit_codes(refused: Exception, code: int) -> None:
    async def start(*, task_status: trio.TaskStatus[str]) -> None:
        raise refused

    umask = os.umask(0o077)
    try:
        with pytest.raises(StartFailed) as caught:
            serve_command(start, str, MetadataError)
    finally:
        os.umask(umask)
    assert caught.value.exit_code == code
    assert caught.value.message == str(refused)
