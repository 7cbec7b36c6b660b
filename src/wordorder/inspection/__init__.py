"""Show what the encoding of a trained model has learned, and how a language model uses its memory."""

from wordorder.inspection.figures import draw as draw
from wordorder.inspection.figures import draw_reading as draw_reading
from wordorder.inspection.findings import Inspection as Inspection
from wordorder.inspection.findings import MapFindings as MapFindings
from wordorder.inspection.findings import inspect_model as inspect_model
from wordorder.inspection.findings import numbers as numbers
from wordorder.inspection.language_model import LanguageModelInspection as LanguageModelInspection
from wordorder.inspection.language_model import LossByContext as LossByContext
from wordorder.inspection.language_model import ReadingHabits as ReadingHabits
from wordorder.inspection.language_model import inspect_language_model as inspect_language_model
from wordorder.inspection.language_model import language_model_numbers as language_model_numbers
from wordorder.inspection.language_model import loss_by_context as loss_by_context
from wordorder.inspection.language_model import reading_habits as reading_habits
from wordorder.inspection.maps import DistanceProfile as DistanceProfile
from wordorder.inspection.maps import ScoreMap as ScoreMap
from wordorder.inspection.maps import ToeplitzShare as ToeplitzShare
from wordorder.inspection.maps import distance_profile as distance_profile
from wordorder.inspection.maps import position_correlation as position_correlation
from wordorder.inspection.maps import score_maps as score_maps
from wordorder.inspection.maps import toeplitz_share as toeplitz_share
from wordorder.inspection.saved import SavedInspection as SavedInspection
from wordorder.inspection.saved import default_folder as default_folder
from wordorder.inspection.saved import inspect_model_dir as inspect_model_dir
