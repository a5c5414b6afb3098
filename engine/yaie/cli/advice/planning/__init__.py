"""What `yaie plan` works out: memory, nodes with room, rollouts."""
