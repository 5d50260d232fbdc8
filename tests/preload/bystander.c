// SPDX-License-Identifier: Apache-2.0
// Copies of it make the loader's list of modules long.
int bystander;
