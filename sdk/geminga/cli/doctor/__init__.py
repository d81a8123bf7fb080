"""`geminga doctor`: one look at a server (spec OP-01, OP-12). Heavy imports follow checked
arguments.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from geminga.cli._access import Access, access_options
from geminga.cli.admin.calls import URL_DEFAULT, Calls, Place
from geminga_runtime.host_port import bracketed

if TYPE_CHECKING:
    from geminga.cli.doctor.report import Line

REQUEST_S = 5
"""Of each thing that is asked: a server that is well answers in a moment."""
NO_TOPIC = "persistent://public/default/no-such-topic"
"""Looked up if no topic is named; any answer will do."""


@click.command("doctor")
@click.option("--admin-url", metavar="URL", help="Web service; by default http://localhost:8080.")
@access_options
@click.option("-s", "--subscription", metavar="NAME", help="Of the topic; by default all.")
@click.option("--request-timeout", "request_timeout_s", type=click.IntRange(min=1),
              default=REQUEST_S, show_default=True, metavar="SECONDS",
              help="How long each answer is waited for.")  # fmt: skip
@click.option("--json", "in_json", is_flag=True, help="One JSON object.")
@click.argument("topic", required=False)
def doctor(
    admin_url: str | None,
    access: Access,
    subscription: str | None,
    request_timeout_s: int,
    in_json: bool,
    topic: str | None,
) -> None:
    """Look once at a server: ports, versions, clock, disks, backlogs, and why subscriptions get
    nothing. With a TOPIC only that one's subscriptions are explained; without, one that has no
    consumers, or waits as it was told to, is a warning only, and topics that nobody has used
    since the start aren't looked at.

    Exit codes: 0 if nothing failed, 1 if something did, 2 for wrong usage.
    """
    if subscription is not None and topic is None:
        raise click.UsageError("-s needs a topic")
    from geminga.cli.doctor.report import as_json, as_text, exit_code
    from geminga.errors import InvalidArgumentError, InvalidServiceUrlError

    lines: list[Line] = []
    try:
        for line in _looked(admin_url, access, request_timeout_s, topic, subscription):
            lines.append(line)
            if not in_json:
                click.echo(as_text([line]))
    except (InvalidArgumentError, InvalidServiceUrlError) as error:
        raise click.UsageError(str(error)) from None
    if in_json:
        click.echo(as_json(lines))
    sys.exit(exit_code(lines))


def _looked(
    admin_url: str | None,
    access: Access,
    timeout_s: int,
    topic: str | None,
    subscription: str | None,
) -> Iterator[Line]:
    """Raises InvalidArgumentError, InvalidServiceUrlError for what no server could be asked."""
    import trio

    from geminga._admin.requests import topic_parts
    from geminga.cli.doctor import looks

    if topic is not None:
        domain, namespace, local = topic_parts(topic)
        topic = f"{domain}://{namespace}/{local}"
    given = click.get_current_context().get_parameter_source("service_url")
    place = _place(admin_url, access, service_url_given=given is not ParameterSource.DEFAULT)
    place = replace(place, request_timeout_s=timeout_s)
    calls = Calls(place)
    reached = False
    for line in looks.whole_server(calls):
        reached |= (line.check, line.level) == ("web", "ok")
        yield line
    configured = access.conf.broker_url
    if given is ParameterSource.DEFAULT and (admin_url is not None or not configured):
        asked = place.admin_url or URL_DEFAULT
        # A web service that gives no answer isn't waited for again. One that was named on the
        # command line may be another server than client.conf's.
        found = looks.service_url_of(calls if reached else None, asked, configured)
        access = replace(access, url=found)
    yield trio.run(looks.port, access, topic or NO_TOPIC, timeout_s)
    if reached and topic is None:
        yield from looks.all_topics(calls)
    elif reached and topic is not None:
        yield from looks.one_topic(calls, topic, subscription)


def _place(admin_url: str | None, access: Access, *, service_url_given: bool) -> Place:
    """The web service, with the credentials and TLS of the broker's port."""
    conf = access.conf
    url = admin_url or conf.web_url or None
    if url is None and service_url_given:
        parts = urlsplit(access.url)
        if parts.hostname:
            host = bracketed(parts.hostname)
            tls = parts.scheme == "pulsar+ssl"
            url = f"https://{host}:8443" if tls else f"http://{host}:8080"
    return Place(
        admin_url=url,
        auth_plugin=conf.auth_plugin or None,
        auth_params=(conf.auth_params or None) if conf.auth_plugin else None,
        allow_insecure=conf.allow_insecure,
        trust_certs=conf.trust_certs or None,
        hostname_verification=conf.validate_hostname,
        certificate=conf.certificate or None,
        key=conf.key or None,
    )
