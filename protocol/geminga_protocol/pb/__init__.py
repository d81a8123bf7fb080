"""Code generated from the .proto files here; `make proto` regenerates it."""
