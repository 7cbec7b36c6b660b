"""Check that an encoding keeps to what training, packing, padding, caching and saving rely on."""

from wordorder.networks.encoding_checks.checks import CHECKS
from wordorder.networks.encoding_checks.suite import USES, Finding, check_encoding

__all__ = ["CHECKS", "USES", "Finding", "check_encoding"]
