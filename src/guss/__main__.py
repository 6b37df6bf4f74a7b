"""`python -m guss` is `guss`."""

from guss.cli import main

main()
