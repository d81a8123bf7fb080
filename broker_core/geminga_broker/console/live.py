"""Numbers for the plots, which the console's script asks for every few seconds."""

from __future__ import annotations

from starlette.responses import Response

from geminga_broker.console.answers import Load
from geminga_broker.console.site import Visit
from geminga_broker.console.topic_pages import partitions_of, statistics


async def _of_broker(visit: Visit) -> Response:
    load = await visit.rest.get("/admin/v2/broker-stats/load-report", Load)
    return visit.json({"in": load.msg_rate_in, "out": load.msg_rate_out})


async def _of_topic(visit: Visit) -> Response:
    topic = visit.topic
    stats = await statistics(visit, topic, await partitions_of(visit, topic))
    return visit.json(
        {"in": stats.msg_rate_in, "out": stats.msg_rate_out, "backlog": stats.backlog}
    )


VIEWS = (
    ("GET /live", _of_broker),
    ("GET /live/{domain}/{tenant}/{namespace}/{topic}", _of_topic),
)
