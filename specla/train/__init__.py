"""Making the bundled model: text, tokenizer, training and prompts."""
