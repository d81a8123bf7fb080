"""`geminga admin`: pulsar-admin's commands and options over the admin client (spec OP-01, SDK-48).

The commands are rows of tables in `table/`; only the table of the family that is used is imported.
"""

from __future__ import annotations

from pathlib import Path

import click

from geminga.cli import GuessingGroup
from geminga.cli.admin.calls import REQUEST_TIMEOUT_S, URL_DEFAULT, Calls, Place
from geminga.cli.admin.declare import FAMILIES, Family


class _FamilyGroup(GuessingGroup):
    """The commands of one family."""

    def __init__(self, name: str, family: Family) -> None:
        super().__init__(
            name,
            help=family.about,
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        self._modules = family.modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the table's order."""
        from geminga.cli.admin.build import commands_of

        return [name for name, row in commands_of(self._modules).items() if not row.is_hidden]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command; modules of the table are imported until one has it."""
        from geminga.cli.admin.build import built, rows_of

        for module in self._modules:
            for row in rows_of(module):
                if row.name == cmd_name:
                    return built(row)
        return None


class _Admin(GuessingGroup):
    """The families."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        return sorted(FAMILIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A family, also by a former name."""
        name = FORMER_NAMES.get(cmd_name, cmd_name)
        family = FAMILIES.get(name)
        return None if family is None else _FamilyGroup(name, family)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As of click. Raises UsageError, which says so of what pulsar-admin has besides."""
        if args and args[0] in NOT_THERE:
            ctx.fail(f"No command {args[0]!r}: {NOT_THERE[args[0]]}.")
        return super().resolve_command(ctx, args)


_FUNCTIONS = "Geminga runs no functions and connectors"
NOT_THERE = {
    **dict.fromkeys(("functions", "functions-worker", "sources", "source"), _FUNCTIONS),
    **dict.fromkeys(("sinks", "sink"), _FUNCTIONS),
    "packages": "Geminga has no store of packages",
    "transactions": "Geminga has no transactions",
}
FORMER_NAMES = {"properties": "tenants", "persistent": "topics", "topic-policies": "topicPolicies"}


@click.command(cls=_Admin, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--admin-url", metavar="URL", help=f"Web service; by default {URL_DEFAULT}.")
@click.option("--auth-plugin", help="token, tls, basic, oauth2, or Apache's Java class.")
@click.option("--auth-params", help="token:..., file:///..., tlsCertFile:...,tlsKeyFile:... or "
              "a JSON object, as the plug-in takes it.")  # fmt: skip
@click.option("--request-timeout", "request_timeout_s", type=click.IntRange(min=1),
              default=REQUEST_TIMEOUT_S, show_default=True, metavar="SECONDS")  # fmt: skip
@click.option("--tls-allow-insecure/--no-tls-allow-insecure", "allow_insecure", default=None,
              help="Trust any certificate.")  # fmt: skip
@click.option("--tls-trust-cert-path", "--tlsTrustCertsFilePath", "trust_certs", metavar="FILE",
              help="Authorities that are trusted, PEM.")  # fmt: skip
@click.option("--tls-enable-hostname-verification/--no-tls-enable-hostname-verification",
              "hostname_verification", default=None,
              help="Whether the certificate must name the host; it must by default.")  # fmt: skip
@click.option("--tls-cert-file", "certificate", metavar="FILE", help="Own certificate, PEM.")
@click.option("--tls-key-file", "key", metavar="FILE", help="Its private key, PEM.")
@click.option("-c", "--client-config", "config", envvar="PULSAR_CLIENT_CONF",
              type=click.Path(dir_okay=False, path_type=Path),
              help="A client.conf; options win over what it says.")  # fmt: skip
@click.option("--trusted-broker-hosts", metavar="A,B", default="",
              help="Hosts that credentials follow redirects to, too.")  # fmt: skip
@click.pass_context
def admin(
    context: click.Context,
    admin_url: str | None,
    auth_plugin: str | None,
    auth_params: str | None,
    request_timeout_s: int,
    allow_insecure: bool | None,
    trust_certs: str | None,
    hostname_verification: bool | None,
    certificate: str | None,
    key: str | None,
    config: Path | None,
    trusted_broker_hosts: str,
) -> None:
    """Administer a cluster: pulsar-admin's commands, over the REST interface of its brokers."""
    hosts = (each.strip() for each in trusted_broker_hosts.split(","))
    place = Place(
        admin_url=admin_url,
        auth_plugin=auth_plugin,
        auth_params=auth_params,
        request_timeout_s=request_timeout_s,
        allow_insecure=allow_insecure,
        trust_certs=trust_certs,
        hostname_verification=hostname_verification,
        certificate=certificate,
        key=key,
        config=config,
        trusted_broker_hosts=tuple(each for each in hosts if each),
    )
    context.obj = Calls(place)
