"""Scripts that shipped Plans train. Nothing in dstui imports them."""
