"""Transformer-XL (Dai et al. 2019) and LaMemo (Ji et al. 2022): checkpoints of their code."""

from wordorder.papers.lamemo.convert import convert_lamemo as convert_lamemo
