"""Reports as pages: one design for all of them."""
