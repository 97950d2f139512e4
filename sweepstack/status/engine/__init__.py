"""What the engine knows of a stack: the call that asks it, and the state that it answers."""
