"""docs/faq.md and the pages of the mechanisms: what they promise of encodings in networks is so."""

import pytest
import torch

import wordorder


@pytest.mark.parametrize("length", [20, 200])
def test_only_the_positional_part_can_learn(length: int):
    """docs/faq.md: a frozen backbone."""
    encoder = wordorder.Encoder(50, width=32, layers=2, heads=4, max_positions=length, encoding="tupe-r", dropout=0.0)
    for name, parameter in encoder.named_parameters():
        parameter.requires_grad_("encoding" in name)
    (encoder(torch.randint(50, (2, length))).hidden ** 3).mean().backward()
    with_gradient = {name for name, p in encoder.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    assert "encoding.parts.tupe.table.weight" in with_gradient
    assert "encoding.parts.tupe.relative.table.weight" in with_gradient
    assert all("encoding" in name for name in with_gradient)


@pytest.mark.parametrize(
    ("encoding", "symmetric"),
    [("alibi", True), ("kerple", True), ("sandwich", True), ("rope", False), ("t5", False), ("tupe-r", False)],
)
def test_which_encodings_cannot_tell_left_from_right_in_encoders(encoding: str, symmetric: bool):
    """docs/faq.md and the pages of the three."""
    encoder = wordorder.Encoder(50, width=32, layers=1, heads=4, max_positions=9, encoding=encoding).eval()
    with torch.no_grad():  # numbers that start at 0 hide nothing
        for parameter in encoder.encoding.parameters():
            parameter += 0.5 * torch.randn_like(parameter)
    tokens = torch.randint(50, (1, 9))
    backwards = encoder(tokens.flip(1)).hidden.flip(1)
    assert torch.allclose(encoder(tokens).hidden, backwards, atol=1e-4) is symmetric


def test_two_content_scales_cannot_act_together_in_one_layer():
    """docs/mechanisms/compositions.md."""
    sizes = {"width": 32, "layers": 2, "heads": 4}
    for pair in (("tupe-a", "deberta"), ("tupe-a", "untied-sum"), ("untied-sum", "deberta")):
        with pytest.raises(ValueError, match=r"content scales|two variants"):
            wordorder.Encoder(50, **sizes, encoding="+".join(pair))
        wordorder.Encoder(50, **sizes, encoding=",".join(pair))
