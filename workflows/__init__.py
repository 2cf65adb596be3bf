"""What happens, in order: the workflows and the messages between them."""
