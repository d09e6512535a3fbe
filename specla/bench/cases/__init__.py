"""What the measuring commands run, a file a kind."""
