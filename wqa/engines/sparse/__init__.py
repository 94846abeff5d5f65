"""Networks on static word embeddings on a CPU, by products with sparse matrices.

The Gluon blocks define the networks. A convolution of embeddings that do not change is a sum of
rows of a table, one for each word of a window, so that all texts of a batch are one product with a
sparse matrix. A recurrent layer runs over the candidates of all questions at once, without padding.

`SparseEngine` scores lists, for ranking, by numpy and scipy. It computes networks that encode pairs
as Cosinet does (`wqa.systems.cosinet.network`). MXNet trains them.
"""
