"""Find the tables of a network that are read by the rows of a batch's tokens and in no other way."""

from torch import Tensor, nn

from wordorder.encodings import Encoding
from wordorder.encodings.wave_embedding import WaveEmbedding


def token_tables(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the tables with a row per token that only look-ups read, by the names that ``model`` gives them.

    A table that is tied to an output layer is read whole, and has a gradient in every row. Tables of positions belong
    to encodings, which read them by slices. Frozen tables have no gradient and are left out.

    Args:
        model: holds embeddings of tokens, `ComplexOrderEmbedding` and nn.Embedding.
    """
    read_whole = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
    wanted = {id(table) for module in _embeddings(model) for table in _by_word(module)} - read_whole
    return {name: weight for name, weight in model.named_parameters() if id(weight) in wanted and weight.requires_grad}


def _embeddings(model: nn.Module) -> list[nn.Embedding | WaveEmbedding]:
    """Return the wave embeddings, which may be part of an encoding, and all other embeddings that are not."""
    encodings = [module for module in model.modules() if isinstance(module, Encoding)]
    of_encodings = {id(part) for encoding in encodings for part in encoding.modules()}
    return [
        module
        for module in model.modules()
        if isinstance(module, WaveEmbedding) or (isinstance(module, nn.Embedding) and id(module) not in of_encodings)
    ]


def _by_word(module: nn.Embedding | WaveEmbedding) -> list[Tensor]:
    if isinstance(module, nn.Embedding):
        return [module.weight]
    return [table for table in module.named_tables().values() if table.shape[0] == module.vocabulary]
