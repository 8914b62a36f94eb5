"""Files -> Item: read, check and sample labelled texts."""

from flipmeter.data.cardinality import Groups, merge, merge_sample
from flipmeter.data.catalog import CatalogEntry, Split, datasets
from flipmeter.data.digest import item_digest, unit_digests
from flipmeter.data.files import load_file, with_demos
from flipmeter.data.load import load
from flipmeter.data.sampling import Balance, Sample, largest_test_size, sample

__all__ = [
    "Balance",
    "CatalogEntry",
    "Groups",
    "Sample",
    "Split",
    "datasets",
    "item_digest",
    "largest_test_size",
    "load",
    "load_file",
    "merge",
    "merge_sample",
    "sample",
    "unit_digests",
    "with_demos",
]
