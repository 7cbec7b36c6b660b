"""`python -m wordorder` is the command `wordorder`."""

from wordorder.cli.main import main

main()
