"""What computes networks: MXNet, oneDNN, sparse products; and exported graphs: ONNX Runtime."""
