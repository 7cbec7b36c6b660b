"""Export to ONNX with open batch and length, run in onnxruntime; skipped where one of the three packages is missing."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from wordorder.models import build_config, build_model

pytest.importorskip("onnx", reason="onnx is not installed; it comes with the extra dev")
pytest.importorskip("onnxscript", reason="onnxscript is not installed; it comes with the extra dev")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed; it comes with the extra dev")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "export.md"
LONGEST = 64
# What the exporter says of two inputs that share their axes, and of its own use of torch's trees.
pytestmark = [
    pytest.mark.filterwarnings("ignore:# The axis name:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec:FutureWarning"),
]


def build(task="masked-lm", encoding="tupe-r", **fields):
    sizes = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": 0}
    config = build_config("encoder", encoding=encoding, max_position_embeddings=LONGEST, **{**sizes, **fields})
    model = build_model(config, task, seed=1).eval()
    with torch.no_grad():  # so that nothing hides behind a 0
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def batch(rows, length):
    """Texts of several lengths, padded on the right, on the left, and not at all."""
    x, mask = torch.randint(1, 50, (rows, length)), torch.ones(rows, length, dtype=torch.long)
    if length > 1:
        mask[0, (length + 1) // 2 :] = 0
    if rows > 1:
        mask[1, : length // 3] = 0
    return x * mask, mask


def check(model, session, inputs, where):
    with torch.no_grad():
        torch_says = model(**inputs)[0]
    (onnx_says,) = session.run(None, {name: value.numpy() for name, value in inputs.items()})
    assert onnx_says.shape == torch_says.shape
    np.testing.assert_allclose(onnx_says[where], torch_says[where], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_the_page_s_example_serves_any_batch_and_length_with_padding(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build(encoding_options={"cls": "position-0", "reset": "reference-code"}).save_pretrained("runs/mine/model")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert 5 <= len(code.splitlines()) <= 15
    names = {}
    exec(compile(code, PAGE.name, "exec"), names)
    model, session = names["model"], names["session"]
    assert [entry.shape for entry in session.get_inputs()] == [["batch", "length"]] * 2
    assert session.get_outputs()[0].shape == ["batch", "length", 50]
    check(model, session, names["inputs"], slice(None))
    for rows, length in ((1, 1), (3, 1), (1, 2), (2, 9), (5, 17), (3, 63), (1, LONGEST)):
        x, mask = batch(rows, length)
        check(model, session, {"input_ids": x, "attention_mask": mask}, mask.bool().numpy())


@pytest.mark.slow
def test_the_encoder_alone_without_padding(tmp_path):
    model = build(num_hidden_layers=1).model
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=LONGEST)}
    program = torch.onnx.export(
        model, kwargs={"input_ids": batch(2, 9)[0]}, dynamo=True, dynamic_shapes={"input_ids": axes}, verbose=False
    )
    program.save(tmp_path / "encoder.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "encoder.onnx")
    for rows, length in ((1, 1), (4, 31), (2, LONGEST)):
        check(model, session, {"input_ids": torch.randint(50, (rows, length))}, slice(None))


@pytest.mark.slow
def test_a_text_classifier_with_tupe_a_gives_the_same_logits_for_any_batch_and_length(tmp_path):
    model = build("classification", "tupe-a", num_hidden_layers=1, num_labels=3)
    inputs = dict(zip(("input_ids", "attention_mask"), batch(2, 9), strict=True))
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=LONGEST)}
    program = torch.onnx.export(
        model, kwargs=inputs, dynamo=True, dynamic_shapes={name: axes for name in inputs}, verbose=False
    )
    program.save(tmp_path / "classifier.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "classifier.onnx")
    assert session.get_outputs()[0].shape == ["batch", 3]
    for rows, length in ((1, 1), (2, 9), (5, 17), (1, LONGEST)):
        x, mask = batch(rows, length)
        check(model, session, {"input_ids": x, "attention_mask": mask}, slice(None))
