"""What `yaie explain` works out: why a model is as it is."""
