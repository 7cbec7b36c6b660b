"""Use a saved model: predict, translate, continue a text, score it exactly, and push it to a hub."""

from wordorder.inference.evaluate import Context, evaluate_model_dir
from wordorder.inference.predict import answer, classify, fill_mask, regress, translate
from wordorder.inference.push import push_model

__all__ = ["Context", "answer", "classify", "evaluate_model_dir", "fill_mask", "push_model", "regress", "translate"]
