"""Swap the encoding of a model of transformers by name."""

from wordorder.models.swap.families import FAMILIES as FAMILIES
from wordorder.models.swap.folder import load_swapped as load_swapped
from wordorder.models.swap.folder import register as register
from wordorder.models.swap.folder import save_swapped as save_swapped
from wordorder.models.swap.swap import swap_encoding as swap_encoding
from wordorder.models.swap.swap import unswap as unswap
