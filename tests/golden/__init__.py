"""Sweeps as earlier versions left them: their states, evidence and stack files. Later versions read them."""
