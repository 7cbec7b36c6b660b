"""Show what the encoding of a trained model has learned, and how a language model uses its memory."""

from wordorder.inspection.figures import draw, draw_reading
from wordorder.inspection.findings import Inspection, MapFindings, inspect_model, numbers
from wordorder.inspection.language_model import (
    LanguageModelInspection,
    LossByContext,
    ReadingHabits,
    inspect_language_model,
    language_model_numbers,
    loss_by_context,
    reading_habits,
)
from wordorder.inspection.maps import (
    DistanceProfile,
    ScoreMap,
    ToeplitzShare,
    distance_profile,
    keep_part,
    low_rank_share,
    position_correlation,
    score_maps,
    toeplitz_share,
    worth_of_parts,
)
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
