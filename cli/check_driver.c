/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver library of one function, for `ingero check`: a call that the shim
 * must record, on a machine with or without a GPU.
 */
__attribute__((visibility("default"))) int cuStreamSynchronize(void *stream);

int cuStreamSynchronize(void *stream)
{
	(void)stream;
	return 0; /* CUDA_SUCCESS */
}
