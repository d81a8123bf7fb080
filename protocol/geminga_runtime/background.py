"""Work in the background that must not take down what it works for."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import ParamSpec

_log = logging.getLogger(__name__)

P = ParamSpec("P")


async def run_guarded(
    job: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs
) -> None:
    """Await the job. Logs an unexpected error instead of raising it, which would cancel everything
    in the nursery.
    """
    try:
        await job(*args, **kwargs)
    except Exception:
        name = getattr(job, "__qualname__", repr(job))
        _log.exception("a defect: %s broke off", name)
