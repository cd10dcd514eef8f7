"""Labelled images by name, as uint8 in one array, and their split into training, validation and test.

image_data.py    ImageSet, ImageData: images and labels, split, hash; training batches; pixels as a model reads them
sources.py       open_images: digits, NumPy files, folders, OpenML, Hugging Face datasets
decoding.py      one file of any format as uint8 pixels, or a refusal that names it; some test images and users' files
"""

from __future__ import annotations

from aotlens.data.images.decoding import ChosenImages, choose_images, decode_image
from aotlens.data.images.image_data import ImageData, ImageProcessor, ImageSampler, ImageSet
from aotlens.data.images.sources import open_images
