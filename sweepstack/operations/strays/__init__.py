"""What bills, or may, and stands in no state: found, judged, adopted or ended."""
