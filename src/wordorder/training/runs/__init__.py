"""One run, from the recipe to the folder that documents it."""
