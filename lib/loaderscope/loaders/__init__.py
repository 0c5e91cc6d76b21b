"""The live side of a loader: read its configuration, copy it with changes, count its samples, end its workers."""

from loaderscope.loaders.batches import batch_size_of
from loaderscope.loaders.changes import ARGUMENTS
from loaderscope.loaders.cloning import release
from loaderscope.loaders.spec import LoaderSpec

__all__ = ["ARGUMENTS", "LoaderSpec", "batch_size_of", "release"]
