"""The pass: which waiting gang gets which hosts."""
