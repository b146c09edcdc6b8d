/* engine_mpi.h - the engine's transport by MPI. MIT licence, see bitsnap.h. */
#ifndef BITSNAP_ENGINE_MPI_H
#define BITSNAP_ENGINE_MPI_H

#include "bitsnap_engine.h"

#include <mpi.h>

/* Of all ranks of a communicator, of which it makes a copy of its own. MPI must have been started with MPI_THREAD_MULTIPLE: 1 if not. */
int engine_mpi_open(engine_transport *t, MPI_Comm all);
void engine_mpi_close(engine_transport *t);

#endif
