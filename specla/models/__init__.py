"""Target models: their configuration, weights, forward passes, states and costs."""
