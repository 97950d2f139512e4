"""Every rented test that rents on RunPod, once more with GraphQL answering 410 from the beginning (`make proof`)."""
