"""Every encoding by name. Adding one is one file, one test file and one line here."""

from wordorder.encodings.alibi import ALiBi
from wordorder.encodings.complex_order import ComplexOrder
from wordorder.encodings.complex_vanilla import ComplexVanilla
from wordorder.encodings.learned import Learned
from wordorder.encodings.none import NoEncoding
from wordorder.encodings.places import Encoding
from wordorder.encodings.rotary import LinearScaledRotary, NTKAwareRotary, Rotary, YaRNRotary
from wordorder.encodings.shaw import Shaw
from wordorder.encodings.sinusoidal import Sinusoidal
from wordorder.encodings.t5 import T5
from wordorder.encodings.transformer_xl import TransformerXL
from wordorder.encodings.tupe import TUPE, TUPERelative
from wordorder.encodings.untied_sum import UntiedSum

CATALOG: dict[str, type[Encoding]] = {
    "none": NoEncoding,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "rope": Rotary,
    "rope-linear": LinearScaledRotary,
    "rope-ntk": NTKAwareRotary,
    "rope-yarn": YaRNRotary,
    "alibi": ALiBi,
    "t5": T5,
    "shaw": Shaw,
    "transformer-xl": TransformerXL,
    "tupe-a": TUPE,
    "tupe-r": TUPERelative,
    "untied-sum": UntiedSum,
    "complex-order": ComplexOrder,
    "complex-vanilla": ComplexVanilla,
}
