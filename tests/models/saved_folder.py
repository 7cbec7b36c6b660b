"""Tiny models saved in a folder with a tokenizer, as a run saves them."""

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from wordorder.models import build_config, build_model

WORDS = "the union of states is strong congress will meet again in winter people ask for peace and war".split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 32}


def make_tokenizer():
    """Whole words, [CLS] text [SEP]; ids of the special tokens are 0 to 4."""
    tokens = Tokenizer(models.WordLevel({word: n for n, word in enumerate(SPECIAL + WORDS)}, unk_token="[UNK]"))
    tokens.pre_tokenizer = pre_tokenizers.Whitespace()
    tokens.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    named = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokens, model_max_length=32, model_input_names=["input_ids", "attention_mask"], **named
    )


def save(folder, network, task, **fields):
    """Build a model, save it with its tokenizer, and give the folder's name."""
    known = {"vocab_size": len(SPECIAL) + len(WORDS), "pad_token_id": 0, **SIZES}
    if network in ("decoder", "seq2seq"):
        known |= {"bos_token_id": 3, "eos_token_id": 3}
    if network == "seq2seq":
        known |= {"decoder_start_token_id": 3}
    model = build_model(build_config(network, **{**known, **fields}), task, seed=3).eval()
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return str(folder)
