"""Run the command `wordorder` as `python -m wordorder`."""

from wordorder.cli.main import main

main()
