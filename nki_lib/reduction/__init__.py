"""What is computed along one dimension of a tensor: softmax, running sums, the largest elements."""
