"""The product's own migrations, in a package of the name that the store's have."""
