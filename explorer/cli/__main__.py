"""`python -m explorer.cli`: the command where its script is not on the path."""

from explorer.cli import main

main()
