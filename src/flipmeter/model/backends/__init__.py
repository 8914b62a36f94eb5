"""What answers: endpoints, weights in this process, simulations, callables."""
