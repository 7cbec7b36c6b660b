"""The text classifiers of "Encoding word order in complex embeddings" (Wang et al. 2020), and its published code.

https://arxiv.org/abs/1912.12333. Bags of words, convolutions, recurrent networks and Transformers turn a text into one
vector, in real or complex numbers, from the vectors of its words.
"""

from wordorder.papers.complex_order.classifier import (
    WordOrderClassifierForSequenceClassification as WordOrderClassifierForSequenceClassification,
)
from wordorder.papers.complex_order.classifier import WordOrderClassifierModel as WordOrderClassifierModel
from wordorder.papers.complex_order.classifier import (
    WordOrderClassifierPreTrainedModel as WordOrderClassifierPreTrainedModel,
)
from wordorder.papers.complex_order.configuration import WordOrderClassifierConfig as WordOrderClassifierConfig
from wordorder.papers.complex_order.convolution import ComplexConvolution as ComplexConvolution
from wordorder.papers.complex_order.convolution import TextConvolution as TextConvolution
from wordorder.papers.complex_order.network import BagOfWords as BagOfWords
from wordorder.papers.complex_order.network import TextEmbedding as TextEmbedding
from wordorder.papers.complex_order.network import TextNetwork as TextNetwork
from wordorder.papers.complex_order.network import TextOutput as TextOutput
from wordorder.papers.complex_order.network import TextTransformer as TextTransformer
from wordorder.papers.complex_order.published_code import ReferenceOrderEmbedding as ReferenceOrderEmbedding
from wordorder.papers.complex_order.published_code import ReferenceTextNetwork as ReferenceTextNetwork
from wordorder.papers.complex_order.published_code import ReferenceTransformer as ReferenceTransformer
from wordorder.papers.complex_order.published_code import ReferenceVanillaEmbedding as ReferenceVanillaEmbedding
from wordorder.papers.complex_order.published_code import ReferenceWords as ReferenceWords
from wordorder.papers.complex_order.published_code import UnitaryRecurrent as UnitaryRecurrent
from wordorder.papers.complex_order.published_code import UnitaryTextRecurrent as UnitaryTextRecurrent
from wordorder.papers.complex_order.recurrent import ComplexLSTM as ComplexLSTM
from wordorder.papers.complex_order.recurrent import TextRecurrent as TextRecurrent
from wordorder.papers.complex_order.word_vectors import load_word_vectors as load_word_vectors
