"""One module for each screen: its pages and the actions on them."""
