"""Labelled images by name, as uint8 in one array, and their split into training, validation and test.

image_data.py    ImageSet, ImageData: images and labels, the split, the hash; batches for training
sources.py       open_images: digits, NumPy files, folders, OpenML, Hugging Face datasets
decoding.py      one file of any format as uint8 pixels, or a refusal that names it; some test images and users' files
processor.py     how a model is fed with pixels, and what its classes are called
"""

from __future__ import annotations

from aotlens.data.images.decoding import ChosenImages, choose_images, decode_image
from aotlens.data.images.image_data import ImageData, ImageSampler, ImageSet
from aotlens.data.images.processor import ImageProcessor
from aotlens.data.images.sources import open_images
