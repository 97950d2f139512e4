"""For authors of profiles: begin one, ask a box for its facts, say what leans on them; gotchas."""
