"""The base of the encoder's heads with labels: they hold the encoder and read texts of any length."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any

from torch import Tensor

from wordorder.models.config.encoder import WordOrderEncoderConfig
from wordorder.models.encoder.document import read_document
from wordorder.models.encoder.model import WordOrderEncoderModel, WordOrderEncoderPreTrainedModel
from wordorder.models.head import LabelledHead
from wordorder.models.outputs import WordOrderModelOutput


class EncoderHead(WordOrderEncoderPreTrainedModel, LabelledHead):
    """A head on the encoder that learns from ``labels``, for texts of any length where the model has a memory."""

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__(config)
        self.model = WordOrderEncoderModel(config)

    def read(self, *texts: Tensor | None, **inputs: Any) -> WordOrderModelOutput:
        """Return the encoder's output, of several segments where the texts are longer than one; see `read_document`.

        Args:
            *texts: the first four arguments of `forward`.
            **inputs: its other arguments.
        """
        return read_document(self.model, *texts, **inputs)
