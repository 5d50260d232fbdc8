# SPDX-License-Identifier: Apache-2.0
"""ingero in Python: see ingero.arrow."""
