"""Matrix products: alone, and with what usually surrounds them."""
