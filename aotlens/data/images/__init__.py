"""Labelled images by name, as uint8 in one array, and their split into training, validation and test.

image_data.py    ImageSet, ImageData: what there is of images and labels, the split, the hash
sources.py       open_images: digits, NumPy files, folders, OpenML, Hugging Face datasets
choosing.py      some test images, and files of one's own before them
decoding.py      one file of any format as uint8 pixels, or a refusal that names it
sampler.py       batches for training: shuffled, flipped, shifted, cropped
processor.py     how a model is fed with pixels, and what its classes are called
"""

from __future__ import annotations

from aotlens.data.images.choosing import ChosenImages, choose_images
from aotlens.data.images.decoding import decode_image
from aotlens.data.images.image_data import ImageData, ImageSet
from aotlens.data.images.processor import ImageProcessor
from aotlens.data.images.sampler import ImageSampler
from aotlens.data.images.sources import open_images
