"""The result of a comparison for its readers: sentence, table, page and figures."""
