import numpy as np

from terafactor.kernels.tiles import cut_into_tiles, locate, number_tiles


def test_columns_are_found_where_tiles_were_put():
    random = np.random.default_rng(0)
    n_features, width, distance = 103, 10, 12
    order = random.permutation(n_features).astype(np.int32)
    tile, inside = np.empty((2, n_features), np.int32)
    cut_into_tiles(order, width, tile, inside)
    np.testing.assert_array_equal(tile[order] * width + inside[order], np.arange(n_features))
    for count in (1, 7, n_features):
        columns = random.permutation(n_features)[:count]
        chosen, places = np.empty(11, np.int64), np.empty(count, np.int64)
        found = locate(columns, tile, inside, distance, chosen, places)
        assert found == number_tiles(columns, tile, np.empty(11, np.int64))
        np.testing.assert_array_equal(chosen[:found], np.unique(tile[columns]))
        stored = np.full((found, distance), -1)
        for number, one in enumerate(chosen[:found]):
            features = order[one * width : (one + 1) * width]
            stored[number, : len(features)] = features
        np.testing.assert_array_equal(stored.ravel()[places], columns)
