/* engine_mpi.h - the engine's transport by MPI. MIT licence, see bitsnap.h. */
#ifndef BITSNAP_ENGINE_MPI_H
#define BITSNAP_ENGINE_MPI_H

#include "bitsnap_engine.h"

#include <mpi.h>

/* Opens a transport between all ranks of a communicator, which it duplicates. Returns 1 unless MPI runs with
 * MPI_THREAD_MULTIPLE. */
int engine_mpi_open(engine_transport *t, MPI_Comm all);
void engine_mpi_close(engine_transport *t);

#endif
