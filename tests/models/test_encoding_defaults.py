"""What a configuration decides about an encoding: its defaults, and [CLS], which is untied where it is declared."""

import pytest
import torch
from transformers import AutoConfig, AutoModel, BertConfig, BertForMaskedLM

import wordorder
from wordorder.models import build_config, build_model, swap_encoding
from wordorder.models.configuration import complete_options

SIZES = {
    "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "max_position_embeddings": 32,
}  # fmt: skip


def parts(config):
    """The encoding of the model that a configuration describes, of its encoder where there are two halves."""
    model = AutoModel.from_config(config)
    network = getattr(model, "encoder", None) or getattr(model, "decoder", None) or model.seq2seq.encoder
    return network.encoding.parts


@pytest.mark.parametrize(
    ("encoding", "part", "option", "default"),
    [
        ("t5", "t5", "scale", 8**0.5),
        ("learned+t5", "t5", "scale", 8**0.5),
        ("sinusoidal", "sinusoidal", "embedding_scale", 4.0),
        ("rope-yarn", "rope", "ramp", "dimension"),
        ("tupe-a", "tupe", "cls", "none"),
        ("rope+tupe-r", "tupe", "cls", "none"),
    ],
)
def test_a_saved_configuration_has_the_same_defaults(tmp_path, encoding, part, option, default):
    config = build_config("encoder", **SIZES, encoding=encoding)
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert loaded.wordorder_version == wordorder.__version__
    assert [getattr(parts(each)[part], option) for each in (config, loaded)] == [default, default]


def test_tupe_unties_cls_in_encoders_that_declare_one():
    assert parts(build_config("encoder", **SIZES, encoding="tupe-r", cls_token_id=2))["tupe"].cls == "position-0"
    assert parts(build_config("encoder", **SIZES, encoding="tupe-r"))["tupe"].cls == "none"
    assert parts(build_config("decoder", **SIZES, encoding="tupe-r", cls_token_id=2))["tupe"].cls == "none"
    chosen = {"encoding": "tupe-r", "encoding_options": {"cls": "none"}, "cls_token_id": 2}
    assert parts(build_config("encoder", **SIZES, **chosen))["tupe"].cls == "none"
    memory = {"memory": "look-ahead", "memory_length": 8, "segment_length": 8}
    assert parts(build_config("encoder", **SIZES, **memory, encoding="tupe-r", cls_token_id=2))["tupe"].cls == "none"


def test_only_the_encoder_half_unties_cls():
    model = build_model(build_config("seq2seq", **SIZES, encoding="tupe-a", cls_token_id=2), "translation", seed=0)
    names = dict(model.named_parameters())
    rows = [len(weight) for name, weight in names.items() if name.endswith("tupe.table.weight")]
    assert sorted(rows) == [32, 33]  # the untied table has one row more


def test_a_swapped_bert_unties_its_cls():
    host = BertForMaskedLM(
        BertConfig(
            vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
            max_position_embeddings=32,
        )
    )  # fmt: skip
    assert swap_encoding(host, "model+tupe-a").bert.wordorder.encoding.parts["tupe"].cls == "position-0"


def test_an_encoder_in_plain_torch_unties_nothing_unless_told():
    sizes = {"width": 16, "layers": 1, "heads": 2, "max_positions": 8}
    assert wordorder.Encoder(9, **sizes, encoding="tupe-r").encoding.parts["tupe"].cls == "none"
    told = wordorder.Encoder(9, **sizes, encoding="tupe-r", encoding_options={"cls": "position-0"})
    assert told.encoding.parts["tupe"].cls == "position-0"
    assert wordorder.TUPE(16, heads=2, max_positions=8).cls == "none"


def test_a_token_at_position_0_is_read_by_place_without_cls():
    """What the untied default cost: no query could find the first token by its place."""
    torch.manual_seed(0)
    encoder = wordorder.Encoder(9, width=16, layers=1, heads=2, max_positions=8, encoding="tupe-a")
    bias = encoding_bias(encoder)
    assert not torch.allclose(bias[..., 1:, 0], bias[..., 1:2, 0].expand_as(bias[..., 1:, 0]))


def encoding_bias(encoder):
    from wordorder.ops import Contiguous

    for parameter in encoder.encoding.parameters():
        torch.nn.init.normal_(parameter)
    return encoder.encoding.prepare(Contiguous(8)).layer(0).bias.dense()


def test_options_of_parts_that_have_no_cls_are_left_alone():
    assert complete_options("rope+learned", None, has_cls=True) == {"rope": {}, "learned": {}}
