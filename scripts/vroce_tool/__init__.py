# SPDX-License-Identifier: GPL-2.0-or-later
"""Set up, run and test labs of guests that share a vroce RDMA network."""
