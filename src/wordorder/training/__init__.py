"""Recipes and runs: read a TOML recipe, train what it describes, evaluate and use the result."""

from wordorder.training.arguments import argument_names
from wordorder.training.contexts import Context
from wordorder.training.evaluate import evaluate_model_dir
from wordorder.training.predict import answer, classify, fill_mask, regress
from wordorder.training.recipe import ArmConfig, CompareConfig, Recipe, read_recipe
from wordorder.training.run import run
from wordorder.training.run_folder import RunResult, read_result
from wordorder.training.translate import translate

__all__ = [
    "ArmConfig",
    "CompareConfig",
    "Context",
    "Recipe",
    "RunResult",
    "answer",
    "argument_names",
    "classify",
    "evaluate_model_dir",
    "fill_mask",
    "read_recipe",
    "read_result",
    "regress",
    "run",
    "translate",
]
