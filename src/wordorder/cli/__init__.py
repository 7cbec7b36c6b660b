"""The command `wordorder`: one file per command, no logic. `main.py` is the entry, `app.py` lists the commands."""
