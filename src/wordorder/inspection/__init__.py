"""The cost of a model before it is trained, and what its encoding has learned afterwards."""

from wordorder.inspection.context import LossByContext, loss_by_context
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
from wordorder.inspection.hardware import DEVICES, Device, device_named
from wordorder.inspection.language_model import (
    LanguageModelInspection,
    inspect_language_model,
    language_model_numbers,
)
from wordorder.inspection.machine import measure_here
from wordorder.inspection.measured_step import Check, check_prediction
from wordorder.inspection.parts import keep_part, worth_of_parts
from wordorder.inspection.prediction import Layout, Prediction, predict
from wordorder.inspection.reading import ReadingHabits, reading_habits
from wordorder.inspection.reading_figures import draw_reading
from wordorder.inspection.saved import SavedInspection, default_folder, inspect_model_dir
from wordorder.inspection.traced_step import Step, Trace, trace
from wordorder.inspection.words import CorrelationTerm, WordPositionCorrelations, word_position_correlations

__all__ = [
    "DEVICES",
    "Check",
    "CorrelationTerm",
    "Device",
    "DistanceProfile",
    "Inspection",
    "LanguageModelInspection",
    "Layout",
    "LossByContext",
    "MapFindings",
    "Prediction",
    "ReadingHabits",
    "SavedInspection",
    "ScoreMap",
    "Step",
    "ToeplitzShare",
    "Trace",
    "WordPositionCorrelations",
    "check_prediction",
    "cost",
    "default_folder",
    "device_named",
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
    "measure_here",
    "numbers",
    "position_correlation",
    "predict",
    "reading_habits",
    "score_maps",
    "toeplitz_share",
    "trace",
    "word_position_correlations",
    "worth_of_parts",
]
