"""A plugin that takes its process with it."""

import os

os._exit(3)
