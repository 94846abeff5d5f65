"""ONNX: translation of networks to graphs, and of exits with their drops to one."""
