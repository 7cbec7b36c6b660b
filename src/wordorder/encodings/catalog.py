"""Map the name of every encoding to its class; a new encoding is one import and one entry here.

`import X as X` tells type checkers that X is public: `wordorder.encodings` exports every class that stands here.
"""

from wordorder.encodings.alibi import ALiBi as ALiBi
from wordorder.encodings.complex_order import ComplexOrder as ComplexOrder
from wordorder.encodings.complex_vanilla import ComplexVanilla as ComplexVanilla
from wordorder.encodings.cope import CoPE as CoPE
from wordorder.encodings.deberta import DeBERTa as DeBERTa
from wordorder.encodings.fire import FIRE as FIRE
from wordorder.encodings.fox import Fox as Fox
from wordorder.encodings.kerple import KERPLELog as KERPLELog
from wordorder.encodings.kerple import KERPLEPower as KERPLEPower
from wordorder.encodings.learned import Learned as Learned
from wordorder.encodings.none import NoEncoding as NoEncoding
from wordorder.encodings.places import Encoding
from wordorder.encodings.rope import LinearScaledRotary as LinearScaledRotary
from wordorder.encodings.rope import NTKAwareRotary as NTKAwareRotary
from wordorder.encodings.rope import Rotary as Rotary
from wordorder.encodings.rope import YaRNRotary as YaRNRotary
from wordorder.encodings.sandwich import Sandwich as Sandwich
from wordorder.encodings.shaw import Shaw as Shaw
from wordorder.encodings.sinusoidal import Sinusoidal as Sinusoidal
from wordorder.encodings.t5 import T5 as T5
from wordorder.encodings.transformer_xl import TransformerXL as TransformerXL
from wordorder.encodings.tupe import TUPE as TUPE
from wordorder.encodings.tupe import TUPERelative as TUPERelative
from wordorder.encodings.untied_sum import UntiedSum as UntiedSum
from wordorder.encodings.xpos import XPos as XPos

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
    "fox": Fox,
    "complex-order": ComplexOrder,
    "complex-vanilla": ComplexVanilla,
}
