"""Use a saved model: predict, translate, continue a text, and score it exactly."""

from wordorder.inference.evaluate import Context, evaluate_model_dir
from wordorder.inference.predict import answer, classify, fill_mask, regress, translate

__all__ = ["Context", "answer", "classify", "evaluate_model_dir", "fill_mask", "regress", "translate"]
