"""How weights come from the hub: in parts that a later try goes on with, and told to people."""
