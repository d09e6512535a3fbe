"""A report made from records alone: claims, tables, plots and the text around them."""
