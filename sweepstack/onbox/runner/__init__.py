"""The runner: runs the cells of one box and seals their files. Python 3.8, standard library only."""
