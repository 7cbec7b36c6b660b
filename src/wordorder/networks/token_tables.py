"""Find the tables of a network that are read by the rows of a batch's tokens and in no other way."""

from torch import nn

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
    encodings = [module for module in model.modules() if isinstance(module, Encoding)]
    of_encodings = {id(part) for encoding in encodings for part in encoding.modules()}
    wanted: set[int] = set()
    for module in model.modules():
        if isinstance(module, WaveEmbedding):  # which may be part of an encoding
            tables = module.named_tables().values()
            wanted |= {id(table) for table in tables if table.shape[0] == module.vocabulary}
        elif isinstance(module, nn.Embedding) and id(module) not in of_encodings:
            wanted.add(id(module.weight))
    wanted -= read_whole
    return {name: weight for name, weight in model.named_parameters() if id(weight) in wanted and weight.requires_grad}
