"""The card of a converted checkpoint claims no score and names its source."""

import json

from huggingface_hub import ModelCard

from wordorder.conversion import ConversionReport
from wordorder.conversion.hugging_face_folder import write_conversion_card


def test_the_card_says_where_the_weights_come_from_and_claims_nothing(tmp_path):
    report = ConversionReport(
        checkpoint="tupe <b>model</b>.pt",
        layout="torch zip",
        architectures=("WordOrderEncoderForMaskedLM",),
        config={},
        parameters=12345,
        dtype="float32",
        mapped={"a": ("b",)},
        ignored=("c",),
        placeholders={},
        tokenizer=False,
        notes=("no tokeniser was written <i>here</i>",),
    )
    config = {"model_type": "wordorder-encoder", "encoding": "tupe-r", "architectures": list(report.architectures)}
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_conversion_card(tmp_path, report)
    card = ModelCard.load(tmp_path / "README.md")
    assert (card.data.pipeline_tag, card.data.eval_results, card.data.datasets) == ("fill-mask", None, None)
    assert "12,345 numbers, float32; 1 weights were mapped, 1 left out" in card.text
    assert "`tupe <b>model</b>.pt`" in card.text
    assert "<i>" not in card.text
    assert "The conversion measures no score" in card.text
