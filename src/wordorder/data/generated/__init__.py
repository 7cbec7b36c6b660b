"""Generated tasks: texts whose one right answer follows from a rule, with the paper that each follows."""
