"""Code generated from the .proto files beside it; `make proto` makes it anew."""
