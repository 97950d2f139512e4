"""What not every sweep needs: a folder each, that can be taken out (docs/adr/023-extensions.md)."""
