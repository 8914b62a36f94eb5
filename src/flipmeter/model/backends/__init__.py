"""Backends: endpoints, weights in this process, simulations, callables."""
