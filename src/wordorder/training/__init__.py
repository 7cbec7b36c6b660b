"""Recipes and runs: read a TOML recipe and train what it describes."""

from wordorder.training.recipe.recipe import ArmConfig, CompareConfig, Recipe, read_recipe
from wordorder.training.recipe.settings import TrainingSettings
from wordorder.training.runs.folder import RunResult, read_result
from wordorder.training.runs.run import run

__all__ = [
    "ArmConfig",
    "CompareConfig",
    "Recipe",
    "RunResult",
    "TrainingSettings",
    "read_recipe",
    "read_result",
    "run",
]
