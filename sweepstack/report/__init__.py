"""One HTML page that loads nothing: what a review is written as, and a page with plots, too."""
