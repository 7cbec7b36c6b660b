"""Texts that are read while training goes on: any place in them can be found again, so that resuming is exact."""

from wordorder.data.streaming.examples import Sharing
from wordorder.data.streaming.stream import TextStream

__all__ = ["Sharing", "TextStream"]
