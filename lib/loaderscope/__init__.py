"""loaderscope: why does the training loop wait for data?"""
