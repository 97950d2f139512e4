"""Reads files that `torch.save` wrote: without torch, or with it."""
