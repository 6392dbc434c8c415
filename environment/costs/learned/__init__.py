"""Prices of kernels that were never timed, predicted from kernels that were."""
