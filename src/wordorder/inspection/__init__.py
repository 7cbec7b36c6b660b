"""Show what the encoding of a trained model has learned, and how a language model uses its memory."""

from wordorder.inspection.context import LossByContext, loss_by_context
from wordorder.inspection.correlation import ScoreMap, position_correlation, score_maps
from wordorder.inspection.distance import (
    DistanceProfile,
    ToeplitzShare,
    distance_profile,
    low_rank_share,
    toeplitz_share,
)
from wordorder.inspection.figures import draw
from wordorder.inspection.findings import Inspection, MapFindings, inspect_model, numbers
from wordorder.inspection.language_model import (
    LanguageModelInspection,
    inspect_language_model,
    language_model_numbers,
)
from wordorder.inspection.parts import keep_part, worth_of_parts
from wordorder.inspection.reading import ReadingHabits, reading_habits
from wordorder.inspection.reading_figures import draw_reading
from wordorder.inspection.saved import SavedInspection, default_folder, inspect_model_dir
from wordorder.inspection.words import CorrelationTerm, WordPositionCorrelations, word_position_correlations

__all__ = [
    "CorrelationTerm",
    "DistanceProfile",
    "Inspection",
    "LanguageModelInspection",
    "LossByContext",
    "MapFindings",
    "ReadingHabits",
    "SavedInspection",
    "ScoreMap",
    "ToeplitzShare",
    "WordPositionCorrelations",
    "default_folder",
    "distance_profile",
    "draw",
    "draw_reading",
    "inspect_language_model",
    "inspect_model",
    "inspect_model_dir",
    "keep_part",
    "language_model_numbers",
    "loss_by_context",
    "low_rank_share",
    "numbers",
    "position_correlation",
    "reading_habits",
    "score_maps",
    "toeplitz_share",
    "word_position_correlations",
    "worth_of_parts",
]
