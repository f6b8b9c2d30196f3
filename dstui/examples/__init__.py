"""Scripts that the shipped Plans train. Nothing in dstui imports them."""
