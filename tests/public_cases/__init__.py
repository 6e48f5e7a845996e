"""What users of tile kernels ran into in public, one test per report, with neighbours of the same family of faults."""
