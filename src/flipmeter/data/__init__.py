"""Files -> Item: read, check and sample labelled texts."""

from flipmeter.data.cardinality import Groups, merge, merge_sample
from flipmeter.data.catalog import datasets
from flipmeter.data.digest import item_digest, unit_digests
from flipmeter.data.files import load_file, with_demos
from flipmeter.data.load import load
from flipmeter.data.sampling import Balance, Sample, sample

__all__ = [
    "Balance",
    "Groups",
    "Sample",
    "datasets",
    "item_digest",
    "load",
    "load_file",
    "merge",
    "merge_sample",
    "sample",
    "unit_digests",
    "with_demos",
]
