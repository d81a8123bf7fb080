"""`python -m geminga.cli` is the `geminga` command."""

from geminga.cli import main

main(prog_name="geminga")
