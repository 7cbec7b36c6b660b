"""Reproductions of papers: variants of published code, text classifiers, converters of checkpoints, figures.

Nothing else of the package needs it. `register` makes it known where a recipe or a saved model names it.
"""


def register() -> None:
    """Register the text classifiers of the complex-order paper with the networks of recipes and with transformers."""
    import transformers as hf

    from wordorder.models.factory import register_network
    from wordorder.papers import complex_order

    register_network(
        complex_order.WordOrderClassifierConfig,
        {
            hf.AutoModel: complex_order.WordOrderClassifierModel,
            hf.AutoModelForSequenceClassification: complex_order.WordOrderClassifierForSequenceClassification,
        },
    )
