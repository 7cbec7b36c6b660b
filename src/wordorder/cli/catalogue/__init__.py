"""Commands that show what there is: encodings, tasks, recipes."""
