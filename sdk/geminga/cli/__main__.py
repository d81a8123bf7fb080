"""`python -m geminga.cli` is the `geminga` command."""

from geminga._command import main

main()
