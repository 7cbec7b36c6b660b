"""The result of a comparison for its readers: sentence, table, page, figures and model cards."""
