"""Map the name of every encoding to its class, which is imported when it is first used.

A new encoding is one line here, and one in `wordorder.encodings`, by which type checkers and editors know the class.
"""

from wordorder.encodings.places import Encoding
from wordorder.registry import Registry

CATALOG: Registry[Encoding] = Registry(
    "encoding",
    {
        "none": "wordorder.encodings.none:NoEncoding",
        "sinusoidal": "wordorder.encodings.sinusoidal:Sinusoidal",
        "learned": "wordorder.encodings.learned:Learned",
        "rope": "wordorder.encodings.rope:Rotary",
        "pope": "wordorder.encodings.pope:PoPE",
        "rope-linear": "wordorder.encodings.rope:LinearScaledRotary",
        "rope-ntk": "wordorder.encodings.rope:NTKAwareRotary",
        "rope-dynamic": "wordorder.encodings.rope:DynamicRotary",
        "rope-yarn": "wordorder.encodings.rope:YaRNRotary",
        "rope-llama3": "wordorder.encodings.rope:Llama3Rotary",
        "rope-longrope": "wordorder.encodings.rope:LongRotary",
        "log-n": "wordorder.encodings.log_n:LogN",
        "alibi": "wordorder.encodings.alibi:ALiBi",
        "t5": "wordorder.encodings.t5:T5",
        "kerple": "wordorder.encodings.kerple:KERPLELog",
        "kerple-power": "wordorder.encodings.kerple:KERPLEPower",
        "fire": "wordorder.encodings.fire:FIRE",
        "sandwich": "wordorder.encodings.sandwich:Sandwich",
        "xpos": "wordorder.encodings.xpos:XPos",
        "shaw": "wordorder.encodings.shaw:Shaw",
        "transformer-xl": "wordorder.encodings.transformer_xl:TransformerXL",
        "deberta": "wordorder.encodings.deberta:DeBERTa",
        "cope": "wordorder.encodings.cope:CoPE",
        "dape": "wordorder.encodings.dape:DAPE",
        "tupe-a": "wordorder.encodings.tupe:TUPE",
        "tupe-r": "wordorder.encodings.tupe:TUPERelative",
        "untied-sum": "wordorder.encodings.untied_sum:UntiedSum",
        "softmax-sink": "wordorder.encodings.softmax_sink:SoftmaxSink",
        "fox": "wordorder.encodings.fox:Fox",
        "path": "wordorder.encodings.path:PaTH",
        "relative-logits": "wordorder.encodings.relative_logits:RelativeLogits",
        "shift": "wordorder.encodings.shift:TokenShift",
        "complex-order": "wordorder.encodings.complex_order:ComplexOrder",
        "complex-vanilla": "wordorder.encodings.complex_vanilla:ComplexVanilla",
    },
)
