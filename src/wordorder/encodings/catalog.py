"""The class of every encoding by name; CONTRIBUTING.md lists the steps to add one."""

from wordorder.encodings.alibi import ALiBi
from wordorder.encodings.complex_order import ComplexOrder
from wordorder.encodings.complex_vanilla import ComplexVanilla
from wordorder.encodings.cope import CoPE
from wordorder.encodings.deberta import DeBERTa
from wordorder.encodings.fire import FIRE
from wordorder.encodings.kerple import KERPLELog, KERPLEPower
from wordorder.encodings.learned import Learned
from wordorder.encodings.none import NoEncoding
from wordorder.encodings.places import Encoding
from wordorder.encodings.rotary import LinearScaledRotary, NTKAwareRotary, Rotary, YaRNRotary
from wordorder.encodings.sandwich import Sandwich
from wordorder.encodings.shaw import Shaw
from wordorder.encodings.sinusoidal import Sinusoidal
from wordorder.encodings.t5 import T5
from wordorder.encodings.transformer_xl import TransformerXL
from wordorder.encodings.tupe import TUPE, TUPERelative
from wordorder.encodings.untied_sum import UntiedSum
from wordorder.encodings.xpos import XPos

CATALOG: dict[str, type[Encoding]] = {
    "none": NoEncoding,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "rope": Rotary,
    "rope-linear": LinearScaledRotary,
    "rope-ntk": NTKAwareRotary,
    "rope-yarn": YaRNRotary,
    "xpos": XPos,
    "alibi": ALiBi,
    "t5": T5,
    "kerple": KERPLELog,
    "kerple-power": KERPLEPower,
    "fire": FIRE,
    "sandwich": Sandwich,
    "shaw": Shaw,
    "transformer-xl": TransformerXL,
    "deberta": DeBERTa,
    "cope": CoPE,
    "tupe-a": TUPE,
    "tupe-r": TUPERelative,
    "untied-sum": UntiedSum,
    "complex-order": ComplexOrder,
    "complex-vanilla": ComplexVanilla,
}
