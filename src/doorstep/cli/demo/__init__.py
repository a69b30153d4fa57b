"""`doorstep demo`: a Doorstep with sample receivers and steady traffic, so that everything has something to show."""
