"""What commands ask of `yaie up` on this machine."""
