"""Code that boxes, hosts and the user's machine share: paths, digests, errors, locks, units."""
