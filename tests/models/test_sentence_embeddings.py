"""sentence-transformers on a trained encoder: embeddings that padding does not move, a step of training."""

import pytest
import torch
from saved_folder import save

library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed; extra sentences")

TEXTS = ["the union is strong", "congress will meet again in winter and people ask for peace", "war"]


def build(folder, encoding="tupe-r"):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    import wordorder.models  # noqa: F401

    words = Transformer(save(folder, "encoder", "masked-lm", encoding=encoding))
    return SentenceTransformer(modules=[words, Pooling(words.get_embedding_dimension())], device="cpu")


@pytest.mark.parametrize("encoding", ["tupe-r", "rope"])
def test_padding_moves_no_embedding(tmp_path, encoding):
    model = build(tmp_path, encoding)
    together = model.encode(TEXTS, batch_size=3, convert_to_tensor=True)
    alone = torch.stack([model.encode(text, convert_to_tensor=True) for text in TEXTS])
    assert together.shape == (3, 16)
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-6)
    assert (together[0] - together[1]).abs().max() > 1e-3


def test_a_loss_of_the_library_trains_every_weight_and_the_model_comes_back(tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    model = build(tmp_path / "base")
    before = model.encode(TEXTS, convert_to_tensor=True)
    loss = MultipleNegativesRankingLoss(model)
    columns = [model.preprocess(column) for column in (TEXTS, TEXTS[::-1])]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loss(columns, torch.arange(3)).backward()
    # theta1 is inert, so the first row of TUPE's table alone may stand still
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())
    optimizer.step()
    after = model.encode(TEXTS, convert_to_tensor=True)
    assert (after - before).abs().max() > 1e-3
    model.save(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(TEXTS, convert_to_tensor=True)
    torch.testing.assert_close(again, after, rtol=0, atol=0)
