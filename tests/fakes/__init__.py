"""Other people's services, as far as Iris uses them."""
