"""What the commands say of the golden sweeps, a text file for each state: see docs/development.md, Golden outputs."""
