"""Property tests over whole programs; `make property` runs them with many examples."""
