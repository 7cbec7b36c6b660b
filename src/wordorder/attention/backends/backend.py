"""The base class of all ways to compute attention."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from torch import Tensor

from wordorder.attention.call import Call
from wordorder.encodings import Terms
from wordorder.ops import Bias, Mask


class Backend(ABC):
    """One exact way to compute attention, in one file; `wordorder.attention.BACKENDS` holds them in order.

    ``tests/contribution/row_by_row.py`` is a small one. All give what `Reference` gives: a query that sees nothing has
    output 0, log-sum-exp -inf and no gradient; a second derivative that a backend does not have is an error.

    A call goes to the first backend that is at home and does not refuse, or to the one that is named.
    """

    name: str
    """Named by ``backend=`` and by the environment variable ``WORDORDER_BACKEND``."""
    grouped: ClassVar[bool] = False
    """Whether keys and values come with their G heads; else repeated for all H heads of the queries."""
    linear: ClassVar[bool] = True
    """Whether scores are linear in q: terms by content then add a vector to it. False in a `Reference` only."""

    @abstractmethod
    def refusal(self, call: Call) -> str | None:
        """Return why it cannot do the call, with the remedy, to be read after its name; None = it can."""

    @abstractmethod
    def at_home(self, call: Call) -> bool:
        """Return whether to take it, if it can do the call and no backend before it was taken."""

    def compiles(self, call: Call) -> bool:
        """Return whether its kernels are compiled by Triton, which is tried once on each device before it is chosen."""
        del call
        return False

    @abstractmethod
    def prepare(self, terms: Terms, mask: Mask | Tensor | None, call: Call) -> Any:
        """Return bias and mask in its own form, once for all layers that share them; gradients stay.

        Args:
            terms: their bias may have one head or one example for all.
            mask: with the window of the layers; bool (B or 1, H or 1, T, S), True = visible, where it was given as a
                tensor. None = every key is seen.
        """

    @abstractmethod
    def attend(
        self,
        q_BHTD: Tensor,
        k_BHSD: Tensor,
        v_BHSE: Tensor,
        prepared: Any,
        added: Bias | None,
        *,
        scale: float,
        dropout: float,
        return_lse: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Return softmax(scale q.k + bias + added) v, (B, H, T, E), and its natural log-sum-exp (B, H, T) where wanted.

        The output has the dtype of v; scores are taken in at least float32, under autocast too (`no_autocast`). What
        `refusal` refuses is passed all the same.

        Args:
            q_BHTD: queries as the encodings have moved them.
            k_BHSD: keys, as well.
            v_BHSE: values.
            prepared: what `prepare` returned.
            added: a bias that depends on this layer's content, already scaled; what else depends on it is in q.
            scale: of the product of queries and keys.
            dropout: probability that a weight is dropped.
            return_lse: whether the log-sum-exp of each row is wanted.
        """
