"""What a model costs before it is trained, and what its encoding has learned afterwards."""

from wordorder.inspection.correlation import ScoreMap, position_correlation, score_maps
from wordorder.inspection.cost import cost
from wordorder.inspection.distance import (
    DistanceProfile,
    ToeplitzShare,
    distance_profile,
    low_rank_share,
    toeplitz_share,
)
from wordorder.inspection.figures import draw
from wordorder.inspection.findings import Inspection, MapFindings, inspect_model, numbers
from wordorder.inspection.parts import keep_part, worth_of_parts
from wordorder.inspection.saved import SavedInspection, default_folder, inspect_model_dir
from wordorder.inspection.words import CorrelationTerm, WordPositionCorrelations, word_position_correlations

__all__ = [
    "CorrelationTerm",
    "DistanceProfile",
    "Inspection",
    "MapFindings",
    "SavedInspection",
    "ScoreMap",
    "ToeplitzShare",
    "WordPositionCorrelations",
    "cost",
    "default_folder",
    "distance_profile",
    "draw",
    "inspect_model",
    "inspect_model_dir",
    "keep_part",
    "low_rank_share",
    "numbers",
    "position_correlation",
    "score_maps",
    "toeplitz_share",
    "word_position_correlations",
    "worth_of_parts",
]
