/* engine_mpi.c - the engine's transport by MPI. MIT licence, see bitsnap.h. */
#include "engine_mpi.h"

#include <limits.h>
#include <stdlib.h>

static int begin(MPI_Request *r, int failed, void **request)
{
    if (failed) free(r), r = NULL;
    *request = r;
    return !r;
}

static int mpi_send(void *context, unsigned to, int tag, const void *bytes, size_t size, void **request)
{
    MPI_Request *r = (MPI_Request *)malloc(sizeof *r);
    return begin(r, !r || size > INT_MAX || MPI_Isend(bytes, (int)size, MPI_BYTE, (int)to, tag, *(MPI_Comm *)context, r) != MPI_SUCCESS, request);
}

static int mpi_receive(void *context, unsigned from, int tag, void *bytes, size_t size, void **request)
{
    MPI_Request *r = (MPI_Request *)malloc(sizeof *r);
    return begin(r, !r || size > INT_MAX || MPI_Irecv(bytes, (int)size, MPI_BYTE, (int)from, tag, *(MPI_Comm *)context, r) != MPI_SUCCESS, request);
}

static int mpi_test(void *context, void **request, int *done)
{
    const int failed = MPI_Test((MPI_Request *)*request, done, MPI_STATUS_IGNORE) != MPI_SUCCESS;
    (void)context;
    if (*done) free(*request), *request = NULL;
    return failed;
}

int engine_mpi_open(engine_transport *t, MPI_Comm all)
{
    int rank, ranks, threads;
    MPI_Comm *own = (MPI_Comm *)malloc(sizeof *own);
    if (!own || MPI_Query_thread(&threads) != MPI_SUCCESS || threads < MPI_THREAD_MULTIPLE || MPI_Comm_dup(all, own) != MPI_SUCCESS) {
        free(own);
        return 1;
    }
    MPI_Comm_set_errhandler(*own, MPI_ERRORS_RETURN);
    MPI_Comm_rank(*own, &rank);
    MPI_Comm_size(*own, &ranks);
    t->context = own;
    t->rank = (unsigned)rank;
    t->ranks = (unsigned)ranks;
    t->send = mpi_send, t->receive = mpi_receive, t->test = mpi_test;
    return 0;
}

void engine_mpi_close(engine_transport *t)
{
    MPI_Comm_free((MPI_Comm *)t->context);
    free(t->context);
    t->context = NULL;
}
